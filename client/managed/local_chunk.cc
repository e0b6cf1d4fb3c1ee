#include "client/managed/local_chunk.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <mutex>
#include <new>
#include <random>
#include <utility>

#include "client/memory/address_window.h"
#include "common/base/map_exactly.h"

namespace fargpu::client {
namespace {

// Behind the window of pinned memory (client/memory/reserve.cc).
#if defined(__SANITIZE_THREAD__)
constexpr uint64_t kWindow = 0x60'0000'0000;
constexpr uint64_t kWindowBytes = uint64_t{1} << 37;
#else
constexpr uint64_t kWindow = 0x3c00'0000'0000;
constexpr uint64_t kWindowBytes = uint64_t{1} << 42;
#endif
constexpr int kTries = 64;

std::atomic<bool> made_any{false};

struct Window {
  std::mutex mutex;
  AddressWindow free;                   // guarded by mutex
  std::map<uint64_t, uint64_t> mapped;  // address -> bytes; guarded by mutex
};
// Never destroyed: calls come until the very end of the process.
Window& window() {
  static auto& made = *[] {
    std::random_device random;
    const uint64_t begin =
        kWindow + random() % (kWindowBytes / 2 / LocalChunk::kGranule) * LocalChunk::kGranule;
    return new Window{{}, AddressWindow(begin, kWindow + kWindowBytes), {}};
  }();
  return made;
}

Fd memory_file(uint64_t bytes) {
  // Where files may not be as large, the system sends SIGXFSZ.
  struct rlimit most = {};
  if (::getrlimit(RLIMIT_FSIZE, &most) != 0 || bytes > most.rlim_cur) return {};
  Fd file(::memfd_create("fargpu-managed", MFD_CLOEXEC));
  if (file.valid() && ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) return {};
  return file;
}

std::byte* pointer(uint64_t address) { return reinterpret_cast<std::byte*>(address); }

}  // namespace

std::optional<LocalChunk> LocalChunk::make(uint64_t bytes) {
  if (bytes == 0 || bytes >= kWindowBytes / 2) return std::nullopt;
  Fd file = memory_file(bytes);
  if (!file.valid()) return std::nullopt;
  void* const local =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.get(), 0);
  if (local == MAP_FAILED) return std::nullopt;
  ::madvise(local, bytes, MADV_DONTFORK);
  LocalChunk chunk;
  chunk.local_ = static_cast<std::byte*>(local);
  chunk.bytes_ = bytes;
  Window& all = window();
  std::lock_guard lock(all.mutex);
  made_any.store(true);
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const auto address = all.free.take(bytes);
    if (!address) break;
    // Where something else lies, the addresses are not given back.
    if (!map_exactly(pointer(*address), bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file.get()))
      continue;
    ::madvise(pointer(*address), bytes, MADV_DONTFORK);
    all.mapped.emplace(*address, bytes);
    chunk.address_ = *address;
    chunk.file_ = std::move(file);
    return chunk;
  }
  return std::nullopt;
}

LocalChunk::~LocalChunk() {
  if (local_ != nullptr) ::munmap(local_, bytes_);
  if (address_ == 0) return;
  Window& all = window();
  std::lock_guard lock(all.mutex);
  ::munmap(pointer(address_), bytes_);
  all.mapped.erase(address_);
  if (!retired_) all.free.give_back(address_, bytes_);
}

void LocalChunk::swap(LocalChunk& other) noexcept {
  std::swap(address_, other.address_);
  std::swap(bytes_, other.bytes_);
  std::swap(local_, other.local_);
  std::swap(file_, other.file_);
  std::swap(retired_, other.retired_);
}

void LocalChunk::clear(uint64_t address, uint64_t bytes) const {
  ::madvise(local(address), bytes, MADV_REMOVE);
}

void block_chunks_after_fork() {
  if (!made_any.load()) return;
  Window& all = window();
  // Another thread may have had the lock in the parent; the mappings were whole for this one.
  for (const auto& [address, bytes] : all.mapped)
    (void)map_exactly(pointer(address), bytes, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
  new (&all.mutex) std::mutex;
}

}  // namespace fargpu::client

#include "client/memory/dual_mapping.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <utility>

#include "client/memory/address_window.h"
#include "client/memory/reserve.h"
#include "common/base/descriptors.h"
#include "common/base/fd.h"
#include "common/host/map_exactly.h"
#include "common/host/memory_page.h"

namespace fargpu::client {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 42;
constexpr int kFlags = MAP_SHARED | MAP_NORESERVE;

struct Mappings {
  std::mutex mutex;
  // The rest is guarded by mutex.
  std::map<uint64_t, uint64_t> mapped{};  // address -> bytes
  Fd file{};                              // the memory of all
  uint64_t file_bytes = 0;
  AddressWindow places{0, kMostBytes};  // in it
  bool forked = false;                  // the file is the parent's
};
Mappings& mappings();

// In a forked child. The parent's memory is inaccessible, as nothing else may lie there.
void after_fork() {
  Mappings& all = mappings();
  all.forked = true;
  for (const auto& [address, bytes] : all.mapped)
    (void)map_exactly(as_pointer(address), bytes, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
  all.mutex.unlock();
}

// Never destroyed: calls come until the very end of the process. A fork waits for the lock, so that
// the child finds whole books.
Mappings& mappings() {
  static auto& made = *[] {
    ::pthread_atfork([] { mappings().mutex.lock(); }, [] { mappings().mutex.unlock(); },
                     after_fork);
    return new Mappings;
  }();
  return made;
}

// All of these with the lock.
bool make_file(Mappings& all, uint64_t bytes) {
  if (!all.file.valid())
    all.file = descriptors::make([] { return ::memfd_create("fargpu-mapped", MFD_CLOEXEC); });
  if (bytes <= all.file_bytes) return true;
  // Where files may not be as large, the system sends SIGXFSZ.
  struct rlimit most = {};
  if (::getrlimit(RLIMIT_FSIZE, &most) != 0 || bytes > most.rlim_cur) return false;
  if (::ftruncate(descriptors::own(all.file.get()), static_cast<off_t>(bytes)) != 0) return false;
  all.file_bytes = bytes;
  return true;
}

// Where memory lies in the file: zeros, and no memory taken for them.
std::optional<uint64_t> take_place(Mappings& all, uint64_t bytes) {
  const auto place = all.places.take(bytes);
  if (!place || make_file(all, *place + bytes)) return place;
  all.places.give_back(*place, bytes);
  return std::nullopt;
}

void give_back_place(Mappings& all, uint64_t place, uint64_t bytes) {
  if (all.forked) return;
  const int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  const auto begin = static_cast<off_t>(place), length = static_cast<off_t>(bytes);
  if (::fallocate(descriptors::own(all.file.get()), mode, begin, length) == 0)
    all.places.give_back(place, bytes);
}

}  // namespace

template <typename Map>
std::optional<DualMapping> DualMapping::make_with(uint64_t bytes, Map&& map) {
  if (bytes == 0 || bytes >= kMostBytes / 2) return std::nullopt;
  Mappings& all = mappings();
  std::lock_guard lock(all.mutex);
  const auto place = take_place(all, bytes);
  if (!place) return std::nullopt;
  const int file = descriptors::own(all.file.get());
  const auto offset = static_cast<off_t>(*place);
  // Before the other mapping, which may lie anywhere, so also here.
  const uint64_t address = map(file, offset);
  void* const local = address == 0
                          ? MAP_FAILED
                          : ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kFlags, file, offset);
  if (local == MAP_FAILED) {
    if (address != 0) ::munmap(as_pointer(address), bytes);
    give_back_place(all, *place, bytes);
    return std::nullopt;
  }
  ::madvise(local, bytes, MADV_DONTFORK);
  ::madvise(as_pointer(address), bytes, MADV_DONTFORK);
  all.mapped.emplace(address, bytes);
  DualMapping made;
  made.local_ = static_cast<std::byte*>(local);
  made.address_ = address;
  made.bytes_ = bytes;
  made.file_ = file;
  made.place_ = *place;
  return made;
}

std::optional<DualMapping> DualMapping::make(AddressUse use, uint64_t bytes) {
  return make_with(bytes, [&](int file, off_t offset) {
    return place_host(use, bytes, [&](uint64_t address) {
      return map_exactly(as_pointer(address), bytes, PROT_NONE, kFlags, file, offset);
    });
  });
}

std::optional<DualMapping> DualMapping::make_at(uint64_t address, uint64_t bytes) {
  auto made = make_with(bytes, [=](int file, off_t offset) {
    return map_exactly(as_pointer(address), bytes, PROT_NONE, kFlags, file, offset) ? address : 0;
  });
  // The window did not give these addresses.
  if (made) made->retire();
  return made;
}

DualMapping::~DualMapping() {
  if (address_ == 0) return;
  ::munmap(local_, bytes_);
  Mappings& all = mappings();
  std::lock_guard lock(all.mutex);
  ::munmap(as_pointer(address_), bytes_);
  give_back_place(all, place_, bytes_);
  all.mapped.erase(address_);
  if (!all.forked) unplace_host(address_, bytes_);
}

void DualMapping::swap(DualMapping& other) noexcept {
  std::swap(address_, other.address_);
  std::swap(bytes_, other.bytes_);
  std::swap(local_, other.local_);
  std::swap(file_, other.file_);
  std::swap(place_, other.place_);
}

std::optional<uint64_t> DualMapping::next_touched(uint64_t address) const {
  const auto from = static_cast<off_t>(place_ + (address - address_));
  const off_t touched = ::lseek(file_, from, SEEK_DATA);
  if (touched < 0) return std::nullopt;
  return address + static_cast<uint64_t>(touched - from);
}

void DualMapping::clear(uint64_t address, uint64_t bytes) const {
  ::madvise(local(address), bytes, MADV_REMOVE);
}

}  // namespace fargpu::client

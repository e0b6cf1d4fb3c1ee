#include "client/memory/reserve.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <random>
#include <set>
#include <vector>

#include "client/memory/address_window.h"
#include "client/memory/page_counts.h"
#include "common/base/log.h"
#include "common/host/map_exactly.h"
#include "common/host/memory_page.h"

namespace fargpu::client {
namespace {

// Far below the heap, stacks and libraries of a 47-bit process, far above those of a worker (which
// begin at a third of the address space, server/handover/child_process.cc) and a fixed-address
// program. Where in a window a process begins is random, so that a worker which has inherited or
// mapped something there does not clash with every client.
#if defined(__SANITIZE_THREAD__)
// Those are not ThreadSanitizer's to give. It leaves the program half a TiB above zero.
constexpr uint64_t kPinnedWindow = 0x20'0000'0000, kManagedWindow = 0x60'0000'0000;
constexpr uint64_t kWindowBytes = uint64_t{1} << 37;
#else
constexpr uint64_t kPinnedWindow = 0x3800'0000'0000, kManagedWindow = 0x3c00'0000'0000;
constexpr uint64_t kWindowBytes = uint64_t{1} << 42;
#endif

// Both are never destroyed: calls come until the very end of the process.
struct Reservations {
  std::mutex mutex;
  PageCounts pages;  // guarded by mutex
};
Reservations& reservations() {
  static auto& made = *new Reservations;
  return made;
}

struct Window {
  const uint64_t step;  // begins of allocations
  std::mutex mutex;
  AddressWindow free;          // guarded by mutex
  std::set<uint64_t> retired;  // allocations that live; guarded by mutex

  // What an allocation takes: with a gap behind it, so that no two touch.
  uint64_t taken_for(uint64_t bytes) const { return (bytes + step - 1) / step * step + step; }
};
Window* new_window(uint64_t start, uint64_t step) {
  constexpr uint64_t kBegins = uint64_t{1} << 21;
  std::random_device random;
  const uint64_t begin = start + random() % (kWindowBytes / 2 / kBegins) * kBegins;
  return new Window{step, {}, AddressWindow(begin, start + kWindowBytes), {}};
}
Window& window_for(AddressUse use) {
  static auto& pinned = *new_window(kPinnedWindow, uint64_t{1} << 16);
  static auto& managed = *new_window(kManagedWindow, kManagedGranule);
  return use == AddressUse::kPinned ? pinned : managed;
}
Window& window_around(uint64_t address) {
  return window_for(address < kManagedWindow ? AddressUse::kPinned : AddressUse::kManaged);
}

void unmap(const PageCounts::Range& range) {
  ::munmap(reinterpret_cast<void*>(range.begin), range.end - range.begin);
}

// All parts or none.
bool map_inaccessible(const std::vector<PageCounts::Range>& parts) {
  for (size_t i = 0; i < parts.size(); ++i) {
    if (map_exactly(reinterpret_cast<void*>(parts[i].begin), parts[i].end - parts[i].begin,
                    PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)) {
      continue;
    }
    for (size_t mapped = 0; mapped < i; ++mapped) unmap(parts[mapped]);
    return false;
  }
  return true;
}

}  // namespace

bool reserve_addresses(uint64_t address, size_t bytes) {
  const uint64_t begin = page_of(address), end = page_from(address + bytes);
  {
    Reservations& all = reservations();
    std::lock_guard lock(all.mutex);
    if (map_inaccessible(all.pages.unused(begin, end))) {
      all.pages.add(begin, end);
      return true;
    }
  }
  static std::atomic<bool> told{false};
  if (!told.exchange(true)) {
    log::info(
        "device memory at 0x{:x} has the address of host memory of this process; copies that infer "
        "their direction take it "
        "for device memory",
        address);
  }
  return false;
}

void release_reserved(uint64_t address, size_t bytes) {
  const uint64_t begin = page_of(address), end = page_from(address + bytes);
  Reservations& all = reservations();
  // Unmapped under the lock: another thread may want the same pages again.
  std::lock_guard lock(all.mutex);
  for (const PageCounts::Range& part : all.pages.remove(begin, end)) unmap(part);
}

void* allocate_host(size_t bytes, int descriptor) {
  const int kind = descriptor < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  const uint64_t length = page_from(bytes);
  if (length < bytes) return nullptr;
  const auto map = [&](uint64_t address) {
    return map_exactly(as_pointer(address), length, PROT_READ | PROT_WRITE, kind, descriptor);
  };
  const uint64_t placed = place_host(AddressUse::kPinned, length, map);
  if (placed != 0) return as_pointer(placed);
  void* anywhere = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, kind, descriptor, 0);
  return anywhere == MAP_FAILED ? nullptr : anywhere;
}

void free_host(void* memory, size_t bytes) {
  const uint64_t length = page_from(bytes);
  ::munmap(memory, length);
  unplace_host(reinterpret_cast<uint64_t>(memory), length);
}

uint64_t place_host(AddressUse use, uint64_t bytes, const std::function<bool(uint64_t)>& map) {
  if (bytes >= kWindowBytes) return 0;
  Window& window = window_for(use);
  for (int attempt = 0; attempt < 64; ++attempt) {
    std::optional<uint64_t> address;
    {
      std::lock_guard lock(window.mutex);
      address = window.free.take(window.taken_for(bytes));
    }
    if (!address) break;
    // Where something else lies, the addresses are not given back.
    if (map(*address)) return *address;
  }
  return 0;
}

void unplace_host(uint64_t address, uint64_t bytes) {
  Window& window = window_around(address);
  std::lock_guard lock(window.mutex);
  if (window.retired.erase(address) != 0 || !window.free.contains(address)) return;
  window.free.give_back(address, window.taken_for(bytes));
}

void retire_addresses(const void* memory) {
  const auto address = reinterpret_cast<uint64_t>(memory);
  Window& window = window_around(address);
  std::lock_guard lock(window.mutex);
  window.retired.insert(address);
}

bool readable(const void* address) {
  // The system copies the mask before it finds that there is no such way to change one: it says
  // EFAULT where it could not, and EINVAL where it could. No filter of system calls can do without
  // this one, unlike process_vm_readv. An aligned word lies in one page.
  const uint64_t word = reinterpret_cast<uint64_t>(address) & ~uint64_t{7};
  if (word == 0) return false;  // would mean: no mask
  const int before = errno;
  const long result = ::syscall(SYS_rt_sigprocmask, ~0, word, nullptr, sizeof(uint64_t));
  const bool copied = result == -1 && errno == EINVAL;
  errno = before;
  return copied;
}

}  // namespace fargpu::client

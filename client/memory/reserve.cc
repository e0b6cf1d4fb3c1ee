#include "client/memory/reserve.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <random>

#include "common/base/log.h"
#include "common/base/map_exactly.h"

namespace fargpu::client {
namespace {

constexpr uint64_t kPage = 4096;

// Far below the heap, stacks and libraries of a 47-bit process, far above a fixed-address program.
// Where in it a process begins is random, so that a worker which has inherited or mapped something
// there does not clash with every client.
#if defined(__SANITIZE_THREAD__)
// Those are not ThreadSanitizer's to give. It leaves the program half a TiB above zero.
constexpr uint64_t kWindow = 0x20'0000'0000;
constexpr uint64_t kWindowBytes = uint64_t{1} << 38;
#else
constexpr uint64_t kWindow = 0x2c00'0000'0000;
constexpr uint64_t kWindowBytes = uint64_t{1} << 42;
#endif

uint64_t whole_pages(uint64_t bytes) { return (bytes + kPage - 1) & ~(kPage - 1); }

std::atomic<uint64_t>& next_address() {
  static std::atomic<uint64_t> next = [] {
    constexpr uint64_t kStep = uint64_t{1} << 21;
    std::random_device random;
    return kWindow + random() % (kWindowBytes / 2 / kStep) * kStep;
  }();
  return next;
}

}  // namespace

bool reserve_addresses(uint64_t address, size_t bytes) {
  const uint64_t begin = address & ~(kPage - 1);
  const uint64_t length = whole_pages(address + bytes - begin);
  if (map_exactly(reinterpret_cast<void*>(begin), length, PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)) {
    return true;
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
  const uint64_t begin = address & ~(kPage - 1);
  ::munmap(reinterpret_cast<void*>(begin), whole_pages(address + bytes - begin));
}

void* allocate_host(size_t bytes, int descriptor) {
  const int kind = descriptor < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  const uint64_t length = whole_pages(bytes);
  if (length < bytes) return nullptr;
  constexpr uint64_t kAlign = uint64_t{1} << 16;
  for (int attempt = 0; attempt < 64; ++attempt) {
    const uint64_t step = (length + kAlign - 1) & ~(kAlign - 1);
    const uint64_t address = next_address().fetch_add(step + kAlign);
    if (address + length > kWindow + kWindowBytes) break;
    auto* const wanted = reinterpret_cast<void*>(address);
    if (map_exactly(wanted, length, PROT_READ | PROT_WRITE, kind, descriptor)) return wanted;
  }
  void* anywhere = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, kind, descriptor, 0);
  return anywhere == MAP_FAILED ? nullptr : anywhere;
}

void free_host(void* memory, size_t bytes) { ::munmap(memory, whole_pages(bytes)); }

bool readable(const void* address) {
  char byte;
  const iovec to{&byte, 1};
  const iovec from{const_cast<void*>(address), 1};
  return ::process_vm_readv(::getpid(), &to, 1, &from, 1, 0) == 1;
}

}  // namespace fargpu::client

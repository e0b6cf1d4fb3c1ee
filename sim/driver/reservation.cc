#include "sim/driver/reservation.h"

#include <sys/mman.h>

namespace fargpu::sim {
namespace {

// ThreadSanitizer divides the address space among itself and the program, and ends a program that
// asks for more.
#if defined(__SANITIZE_THREAD__)
constexpr bool kMayChoose = false;
#else
constexpr bool kMayChoose = true;
#endif

uint64_t reserve(uint64_t at, uint64_t bytes, int flags) {
  void* start = mmap(reinterpret_cast<void*>(at), bytes, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
  return start == MAP_FAILED ? 0 : reinterpret_cast<uint64_t>(start);
}

}  // namespace

uint64_t reserve_at(uint64_t address, uint64_t bytes) {
  if (!kMayChoose) return 0;
  const uint64_t start = reserve(address, bytes, MAP_FIXED_NOREPLACE);
  // A kernel before 4.17 takes the flag for a mere hint.
  if (start != 0 && start != address) unreserve(start, bytes);
  return start == address ? start : 0;
}

uint64_t reserve_anywhere(uint64_t bytes, uint64_t alignment) {
  const uint64_t start = reserve(0, bytes + alignment, 0);
  if (start == 0) return 0;
  const uint64_t aligned = (start + alignment - 1) & ~(alignment - 1);
  if (aligned > start) unreserve(start, aligned - start);
  const uint64_t end = start + bytes + alignment;
  if (end > aligned + bytes) unreserve(aligned + bytes, end - aligned - bytes);
  return aligned;
}

void reserve_again(uint64_t address, uint64_t bytes) { reserve(address, bytes, MAP_FIXED); }

void unreserve(uint64_t address, uint64_t bytes) {
  munmap(reinterpret_cast<void*>(address), bytes);
}

}  // namespace fargpu::sim

#include "sim/memory/reservation.h"

#include <sys/mman.h>

#include "common/host/map_exactly.h"

namespace fargpu::sim {
namespace {

constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

uint64_t reserve(uint64_t at, uint64_t bytes, int flags) {
  void* start = mmap(reinterpret_cast<void*>(at), bytes, PROT_NONE, kFlags | flags, -1, 0);
  return start == MAP_FAILED ? 0 : reinterpret_cast<uint64_t>(start);
}

}  // namespace

uint64_t reserve_at(uint64_t address, uint64_t bytes) {
  return map_exactly(reinterpret_cast<void*>(address), bytes, PROT_NONE, kFlags) ? address : 0;
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

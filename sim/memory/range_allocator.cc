#include "sim/memory/range_allocator.h"

namespace fargpu::sim {

RangeAllocator::RangeAllocator(uint64_t begin, uint64_t end) { insert(begin, end); }

std::optional<uint64_t> RangeAllocator::allocate(uint64_t bytes, uint64_t alignment) {
  for (auto it = by_size_.lower_bound({bytes, 0}); it != by_size_.end(); ++it) {
    const uint64_t start = it->second;
    const uint64_t aligned = (start + alignment - 1) & ~(alignment - 1);
    if (aligned < start || aligned - start > it->first - bytes) continue;
    carve(free_.find(start), aligned, aligned + bytes);
    return aligned;
  }
  return std::nullopt;
}

bool RangeAllocator::allocate_at(uint64_t address, uint64_t bytes) {
  auto it = free_.upper_bound(address);
  if (it == free_.begin()) return false;
  --it;
  if (address >= it->second || it->second - address < bytes) return false;
  carve(it, address, address + bytes);
  return true;
}

void RangeAllocator::free(uint64_t address, uint64_t bytes) {
  uint64_t start = address, end = address + bytes;
  auto next = free_.lower_bound(address);
  if (next != free_.end() && next->first == end) {
    end = next->second;
    erase(next);
  }
  auto previous = free_.lower_bound(address);
  if (previous != free_.begin() && (--previous)->second == start) {
    start = previous->first;
    erase(previous);
  }
  insert(start, end);
}

void RangeAllocator::insert(uint64_t start, uint64_t end) {
  if (start == end) return;
  free_.emplace(start, end);
  by_size_.emplace(end - start, start);
}

void RangeAllocator::erase(FreeMap::iterator it) {
  by_size_.erase({it->second - it->first, it->first});
  free_.erase(it);
}

void RangeAllocator::carve(FreeMap::iterator it, uint64_t start, uint64_t end) {
  const auto [free_start, free_end] = *it;
  erase(it);
  insert(free_start, start);
  insert(end, free_end);
}

}  // namespace fargpu::sim

// Hands out ranges of a number line (device addresses, offsets in a memory file): best fit,
// neighbours merged when freed. Not thread safe: its owner locks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace fargpu::sim {

class RangeAllocator {
 public:
  RangeAllocator(uint64_t begin, uint64_t end);
  // `alignment`: a power of two. nullopt: no free range is large enough.
  std::optional<uint64_t> allocate(uint64_t bytes, uint64_t alignment);
  // Takes exactly [address, address + bytes); false when a part of it is not free.
  bool allocate_at(uint64_t address, uint64_t bytes);
  // The same range as it was given out.
  void free(uint64_t address, uint64_t bytes);

 private:
  using FreeMap = std::map<uint64_t, uint64_t>;  // start -> end
  void insert(uint64_t start, uint64_t end);
  void erase(FreeMap::iterator it);
  void carve(FreeMap::iterator it, uint64_t start, uint64_t end);

  FreeMap free_;
  std::set<std::pair<uint64_t, uint64_t>> by_size_;  // (bytes, start)
};

}  // namespace fargpu::sim

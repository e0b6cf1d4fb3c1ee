// ArrayMappings: which physical memory the tiles of sparse arrays lie in. The driver keeps memory
// that is mapped there, also after its last handle. Pure bookkeeping, one thread (the executor's).
//
// A change is known here when it is put into its stream. The previous memory of a tile stays alive
// until the stream has passed: the caller ends it then.
#pragma once

#include <cuda.h>

#include <compare>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "server/memory/physical_memory.h"

namespace fargpu::server {

class ArrayMappings {
 public:
  // Memory that so many tiles do not lie in any more.
  using Gone = std::vector<PhysicalMemory::User>;
  using TileExtent = decltype(CUDA_ARRAY_SPARSE_PROPERTIES::tileExtent);

  explicit ArrayMappings(PhysicalMemory& physical) : physical_(physical) {}

  // The driver has taken `info` for the array with this id, whose tiles are that large; it names
  // the memory by the driver's handle.
  [[nodiscard]] Gone changed(uint64_t array, const TileExtent& tile, const CUarrayMapInfo& info);
  [[nodiscard]] Gone ended(uint64_t array);

 private:
  // Of the tail of the levels, `x` counts pieces of 64 KiB.
  struct Tile {
    bool is_tail = false;
    unsigned level = 0, layer = 0;
    uint64_t x = 0, y = 0, z = 0;
    auto operator<=>(const Tile&) const = default;
  };
  using Tiles = std::map<Tile, PhysicalMemory::User>;

  PhysicalMemory& physical_;
  std::unordered_map<uint64_t, Tiles> arrays_;
};

}  // namespace fargpu::server

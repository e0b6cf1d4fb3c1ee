// The memory of a sparse array or mipmapped array: tiles of 64 KiB that the program maps, one by
// one, into memory of its own, and per layer the tail of the levels that are smaller than a tile.
// Tiles without memory read as 0, and writes to them are ignored.
//
// Kept alive by the images of its levels. Memory that is mapped stays as long as it is. Thread
// safe.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "sim/image/image.h"
#include "sim/image/tiles.h"

namespace fargpu::sim {

class PhysicalMemory;

class SparseArray {
 public:
  static constexpr uint64_t kTileBytes = 64 << 10;

  // Gives the levels, which have their extents, their places.
  SparseArray(Image::Shape shape, const PixelFormat& format, std::vector<Image::Level*> levels);
  SparseArray(const SparseArray&) = delete;
  SparseArray& operator=(const SparseArray&) = delete;

  CUDA_ARRAY_SPARSE_PROPERTIES properties() const;

  // Tiles that follow one another in memory, which is none when they are unmapped.
  struct Change {
    Tiles* tiles = nullptr;
    std::vector<size_t> indices;
    std::shared_ptr<PhysicalMemory> memory;
    uint64_t offset = 0;
  };
  // INVALID_VALUE: the range is not a multiple of tiles, or the memory is too small.
  CUresult check(const CUarrayMapInfo& info, std::shared_ptr<PhysicalMemory> memory,
                 Change* change);
  void apply(const Change& change);

 private:
  bool find_tiles(const CUarrayMapInfo& info, Change* change);
  bool find_tail(const CUarrayMapInfo& info, Change* change);

  Tiles::Extent tile_;  // width in elements
  uint64_t element_bytes_;
  bool is_3d_;
  struct Level {
    Tiles::Extent extent;  // width in elements
    std::unique_ptr<Tiles> tiles;
  };
  std::vector<Level> levels_;  // down to the tail
  uint64_t layers_;
  uint64_t tail_bytes_ = 0;  // of a layer
  std::unique_ptr<Tiles> tail_;
  std::mutex mutex_;
  std::map<std::pair<const Tiles*, size_t>, std::shared_ptr<PhysicalMemory>> mapped_;
};

}  // namespace fargpu::sim

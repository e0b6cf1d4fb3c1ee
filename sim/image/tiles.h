// The tiles of one level of a sparse array: pieces of 64 KiB of memory that lies anywhere, or
// nowhere. The level's offsets (Image::Level) lead here instead of to memory.
//
// Tiles are placed in the order of a stream, between kernels that use them. Thread safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace fargpu::sim {

class Tiles {
 public:
  struct Extent {
    uint64_t width = 1;  // bytes
    uint64_t height = 1, depth = 1;
    uint64_t bytes() const { return width * height * depth; }
  };
  // Of a level of rows of `pitch` bytes and slices of `slice` bytes.
  Tiles(const Extent& tile, const Extent& level, uint64_t pitch, uint64_t slice);

  // Where the byte at this offset of the level is; nullptr: nowhere, reads give 0.
  uint8_t* at(uint64_t offset) const;
  // So many bytes from there on follow one another.
  uint64_t run(uint64_t offset) const;
  const Extent& count() const { return count_; }  // in tiles
  size_t index(uint64_t x, uint64_t y, uint64_t z) const {
    return (z * count_.height + y) * count_.width + x;
  }
  void place(size_t index, uint8_t* memory) { memory_[index].store(memory); }

 private:
  const Extent tile_;
  const Extent count_;
  const uint64_t pitch_, slice_;
  std::vector<std::atomic<uint8_t*>> memory_;
};

}  // namespace fargpu::sim

#include "sim/image/tiles.h"

namespace fargpu::sim {
namespace {

uint64_t pieces(uint64_t whole, uint64_t piece) { return (whole + piece - 1) / piece; }

}  // namespace

Tiles::Tiles(const Extent& tile, const Extent& level, uint64_t pitch, uint64_t slice)
    : tile_(tile),
      count_{pieces(level.width, tile.width), pieces(level.height, tile.height),
             pieces(level.depth, tile.depth)},
      pitch_(pitch),
      slice_(slice),
      memory_(count_.width * count_.height * count_.depth) {}

uint8_t* Tiles::at(uint64_t offset) const {
  const uint64_t z = offset / slice_, y = offset % slice_ / pitch_, x = offset % slice_ % pitch_;
  uint8_t* const memory = memory_[index(x / tile_.width, y / tile_.height, z / tile_.depth)].load();
  if (memory == nullptr) return nullptr;
  const uint64_t row = z % tile_.depth * tile_.height + y % tile_.height;
  return memory + row * tile_.width + x % tile_.width;
}

uint64_t Tiles::run(uint64_t offset) const {
  return tile_.width - offset % slice_ % pitch_ % tile_.width;
}

}  // namespace fargpu::sim

#include "sim/object/sparse_array.h"

#include <bit>

#include "sim/driver/physical_memory.h"

namespace fargpu::sim {
namespace {

// As hardware has them: 64 KiB each, as square as powers of two can be.
Tiles::Extent tile_of(bool is_3d, uint64_t element) {
  constexpr Tiles::Extent kFlat[] = {
      {256, 256, 1}, {256, 128, 1}, {128, 128, 1}, {128, 64, 1}, {64, 64, 1}};
  constexpr Tiles::Extent kSolid[] = {
      {64, 32, 32}, {32, 32, 32}, {32, 32, 16}, {32, 16, 16}, {16, 16, 16}};
  const auto index = static_cast<unsigned>(std::countr_zero(element));
  return is_3d ? kSolid[index] : kFlat[index];
}

uint64_t up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

SparseArray::SparseArray(Image::Shape shape, const PixelFormat& format,
                         std::vector<Image::Level*> levels)
    : tile_(tile_of(shape == Image::Shape::k3D, format.element_bytes())),
      element_bytes_(format.element_bytes()),
      is_3d_(shape == Image::Shape::k3D),
      layers_(is_3d_ ? 1 : levels.front()->depth) {
  const Tiles::Extent tile{tile_.width * element_bytes_, tile_.height, tile_.depth};
  std::vector<Image::Level*> small;
  for (Image::Level* const level : levels) {
    const uint64_t row = level->width * element_bytes_;
    const bool fits_no_tile =
        level->width < tile_.width || level->height < tile_.height || level->depth < tile_.depth;
    if (!small.empty() || fits_no_tile) {
      small.push_back(level);
      continue;
    }
    level->pitch = up(row, tile.width);
    level->slice = level->pitch * level->height;
    const Tiles::Extent bytes{row, level->height, level->depth};
    levels_.push_back({{level->width, level->height, level->depth},
                       std::make_unique<Tiles>(tile, bytes, level->pitch, level->slice)});
    level->tiles = levels_.back().tiles.get();
  }
  for (Image::Level* const level : small) {
    level->base = tail_bytes_;
    level->pitch = up(level->width * element_bytes_, 64);
    level->slice = level->pitch * level->height;
    tail_bytes_ += level->slice * (is_3d_ ? level->depth : 1);
  }
  if (small.empty()) return;
  tail_bytes_ = up(tail_bytes_, kTileBytes);
  tail_ = std::make_unique<Tiles>(Tiles::Extent{kTileBytes, 1, 1},
                                  Tiles::Extent{tail_bytes_, 1, layers_}, tail_bytes_, tail_bytes_);
  for (Image::Level* const level : small) {
    if (!is_3d_) level->slice = tail_bytes_;
    level->tiles = tail_.get();
  }
}

CUDA_ARRAY_SPARSE_PROPERTIES SparseArray::properties() const {
  CUDA_ARRAY_SPARSE_PROPERTIES properties{};
  properties.tileExtent = {static_cast<unsigned>(tile_.width), static_cast<unsigned>(tile_.height),
                           static_cast<unsigned>(tile_.depth)};
  properties.miptailFirstLevel = tail_ != nullptr ? static_cast<unsigned>(levels_.size()) : 0;
  properties.miptailSize = tail_bytes_;
  if (levels_.empty()) properties.flags = CU_ARRAY_SPARSE_PROPERTIES_SINGLE_MIPTAIL;
  return properties;
}

bool SparseArray::find_tiles(const CUarrayMapInfo& info, Change* change) {
  const auto& wanted = info.subresource.sparseLevel;
  if (wanted.level >= levels_.size() || wanted.layer >= layers_) return false;
  const Level& level = levels_[wanted.level];
  change->tiles = level.tiles.get();
  // One dimension, in tiles: a part ends at a tile or with the level.
  const auto range = [](uint64_t from, uint64_t count, uint64_t tile, uint64_t size,
                        uint64_t* begin, uint64_t* end) {
    if (count == 0 || from % tile != 0 || from >= size) return false;
    if (count % tile != 0 && from + count != size) return false;
    *begin = from / tile;
    *end = (from + count + tile - 1) / tile;
    return *end <= (size + tile - 1) / tile;
  };
  uint64_t x0 = 0, x1 = 0, y0 = 0, y1 = 0, z0 = wanted.layer, z1 = z0 + 1;
  if (!range(wanted.offsetX, wanted.extentWidth, tile_.width, level.extent.width, &x0, &x1) ||
      !range(wanted.offsetY, wanted.extentHeight, tile_.height, level.extent.height, &y0, &y1))
    return false;
  if (is_3d_ &&
      !range(wanted.offsetZ, wanted.extentDepth, tile_.depth, level.extent.depth, &z0, &z1))
    return false;
  if (!is_3d_ && (wanted.offsetZ != 0 || wanted.extentDepth != 1)) return false;
  for (uint64_t z = z0; z < z1; ++z) {
    for (uint64_t y = y0; y < y1; ++y) {
      for (uint64_t x = x0; x < x1; ++x) change->indices.push_back(level.tiles->index(x, y, z));
    }
  }
  return true;
}

bool SparseArray::find_tail(const CUarrayMapInfo& info, Change* change) {
  const auto& wanted = info.subresource.miptail;
  if (tail_ == nullptr || wanted.layer >= layers_ || wanted.offset % kTileBytes != 0 ||
      wanted.size == 0 || wanted.size % kTileBytes != 0 || wanted.offset > tail_bytes_ ||
      wanted.size > tail_bytes_ - wanted.offset)
    return false;
  change->tiles = tail_.get();
  for (uint64_t at = wanted.offset; at < wanted.offset + wanted.size; at += kTileBytes)
    change->indices.push_back(tail_->index(at / kTileBytes, 0, wanted.layer));
  return true;
}

CUresult SparseArray::check(const CUarrayMapInfo& info, std::shared_ptr<PhysicalMemory> memory,
                            Change* change) {
  const bool is_tail = info.subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL;
  if (!is_tail && info.subresourceType != CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL)
    return CUDA_ERROR_INVALID_VALUE;
  if (!(is_tail ? find_tail(info, change) : find_tiles(info, change)))
    return CUDA_ERROR_INVALID_VALUE;
  if (memory != nullptr) {
    const uint64_t bytes = change->indices.size() * kTileBytes;
    if (info.offset % kTileBytes != 0 || bytes > memory->bytes() ||
        info.offset > memory->bytes() - bytes || memory->bytes_at(info.offset) == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
  }
  change->memory = std::move(memory);
  change->offset = info.offset;
  return CUDA_SUCCESS;
}

void SparseArray::apply(const Change& change) {
  std::vector<std::shared_ptr<PhysicalMemory>> gone;  // freed without the lock
  std::lock_guard lock(mutex_);
  uint64_t offset = change.offset;
  for (const size_t index : change.indices) {
    auto& mapped = mapped_[{change.tiles, index}];
    gone.push_back(std::move(mapped));
    mapped = change.memory;
    change.tiles->place(index, mapped != nullptr ? mapped->bytes_at(offset) : nullptr);
    offset += kTileBytes;
  }
}

}  // namespace fargpu::sim

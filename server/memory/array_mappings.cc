#include "server/memory/array_mappings.h"

#include <utility>

namespace fargpu::server {
namespace {

constexpr uint64_t kTileBytes = 64 << 10;

struct TileRange {
  uint64_t begin, end;
  bool has(uint64_t value) const { return value >= begin && value < end; }
};

// In units, also where the last one is not whole.
TileRange range_of(uint64_t from, uint64_t count, uint64_t unit) {
  if (unit == 0) unit = 1;
  return {from / unit, (from + count + unit - 1) / unit};
}

}  // namespace

ArrayMappings::Gone ArrayMappings::changed(uint64_t array, const TileExtent& tile,
                                           const CUarrayMapInfo& info) {
  Tile at{.is_tail = info.subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL};
  TileRange x{}, y{0, 1}, z{0, 1};
  if (at.is_tail) {
    const auto& tail = info.subresource.miptail;
    at.layer = tail.layer;
    x = range_of(tail.offset, tail.size, kTileBytes);
  } else {
    const auto& level = info.subresource.sparseLevel;
    at.level = level.level;
    at.layer = level.layer;
    x = range_of(level.offsetX, level.extentWidth, tile.width);
    y = range_of(level.offsetY, level.extentHeight, tile.height);
    z = range_of(level.offsetZ, level.extentDepth, tile.depth);
  }
  Gone gone;
  Tiles& tiles = arrays_[array];
  if (info.memOperationType == CU_MEM_OPERATION_TYPE_MAP) {
    // No more tiles than the memory has, or the driver had refused it.
    for (at.z = z.begin; at.z < z.end; ++at.z) {
      for (at.y = y.begin; at.y < y.end; ++at.y) {
        for (at.x = x.begin; at.x < x.end; ++at.x) {
          PhysicalMemory::User& user = tiles[at];
          if (user != nullptr) gone.push_back(std::move(user));
          user = physical_.use(info.memHandle.memHandle);
        }
      }
    }
    return gone;
  }
  const auto is_meant = [&](const Tile& each) {
    return each.is_tail == at.is_tail && each.level == at.level && each.layer == at.layer &&
           x.has(each.x) && y.has(each.y) && z.has(each.z);
  };
  std::erase_if(tiles, [&](auto& each) {
    if (!is_meant(each.first)) return false;
    if (each.second != nullptr) gone.push_back(std::move(each.second));
    return true;
  });
  return gone;
}

ArrayMappings::Gone ArrayMappings::ended(uint64_t array) {
  Gone gone;
  const auto tiles = arrays_.extract(array);
  if (tiles.empty()) return gone;
  for (const auto& [tile, user] : tiles.mapped())
    if (user != nullptr) gone.push_back(user);
  return gone;
}

}  // namespace fargpu::server

// Cutting a box into pieces that one frame or one staging slot holds. Pure.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "client/copy/pack.h"

namespace fargpu::client {

inline bool is_packed(const Box& box, const Side& side) {
  const bool rows = box.height == 1 || side.pitch == box.width;
  const bool slices = box.depth == 1 || side.slice == box.width * box.height;
  return rows && slices;
}

// Calls visit(piece, device side, host side) for pieces of at most `limit` bytes: whole slices when
// one fits, else whole rows, else parts of rows.
template <typename Visit>
CUresult for_each_piece(const Box& box, const Side& device, const Side& host, uint64_t limit,
                        Visit&& visit) {
  const auto at = [](const Side& side, size_t x, size_t y, size_t z) {
    return Side{side.address + z * side.slice + y * side.pitch + x, side.pitch, side.slice};
  };
  const uint64_t slice_bytes = box.width * box.height;
  if (slice_bytes <= limit) {
    const size_t step = std::max<uint64_t>(1, limit / slice_bytes);
    for (size_t z = 0; z < box.depth; z += step) {
      const Box piece{box.width, box.height, std::min(step, box.depth - z)};
      if (const CUresult result = visit(piece, at(device, 0, 0, z), at(host, 0, 0, z));
          result != CUDA_SUCCESS) {
        return result;
      }
    }
    return CUDA_SUCCESS;
  }
  for (size_t z = 0; z < box.depth; ++z) {
    if (box.width <= limit) {
      const size_t step = std::max<uint64_t>(1, limit / box.width);
      for (size_t y = 0; y < box.height; y += step) {
        const Box piece{box.width, std::min(step, box.height - y), 1};
        if (const CUresult result = visit(piece, at(device, 0, y, z), at(host, 0, y, z));
            result != CUDA_SUCCESS) {
          return result;
        }
      }
      continue;
    }
    for (size_t y = 0; y < box.height; ++y) {
      for (size_t x = 0; x < box.width; x += limit) {
        const Box piece{std::min<size_t>(limit, box.width - x), 1, 1};
        if (const CUresult result = visit(piece, at(device, x, y, z), at(host, x, y, z));
            result != CUDA_SUCCESS) {
          return result;
        }
      }
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace fargpu::client

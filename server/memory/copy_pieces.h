// Cuts a copy into pieces that fit a staging block: whole slices if they fit, else whole rows, else
// parts of rows. The pieces follow each other in the packed bytes. Pure.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "server/memory/copy_shape.h"

namespace fargpu::server {

struct CopyPiece {
  CUdeviceptr device = 0;
  Shape shape{};
  uint64_t bytes = 0;
};

// The piece that begins `offset` bytes into the packed bytes of a consistent, non-empty shape; at
// most `limit` bytes (limit > 0). `offset` is where an earlier piece ended.
CopyPiece piece_at(CUdeviceptr device, const Shape& shape, uint64_t offset, uint64_t limit);

}  // namespace fargpu::server

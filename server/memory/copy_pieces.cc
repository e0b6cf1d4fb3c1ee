#include "server/memory/copy_pieces.h"

#include <algorithm>

namespace fargpu::server {

CopyPiece piece_at(CUdeviceptr device, const Shape& shape, uint64_t offset, uint64_t limit) {
  const uint64_t rows = offset / shape.width;
  const uint64_t x = offset % shape.width, y = rows % shape.height, z = rows / shape.height;
  CopyPiece piece;
  piece.device = device + z * shape.slice_pitch + y * shape.pitch + x;
  piece.shape = shape;
  const uint64_t slice_bytes = uint64_t{shape.width} * shape.height;
  if (x != 0 || shape.width > limit) {
    piece.shape.width = std::min<uint64_t>(limit, shape.width - x);
    piece.shape.height = piece.shape.depth = 1;
  } else if (y == 0 && slice_bytes <= limit) {
    piece.shape.depth = std::min<uint64_t>(limit / slice_bytes, shape.depth - z);
  } else {
    piece.shape.height = std::min<uint64_t>(limit / shape.width, shape.height - y);
    piece.shape.depth = 1;
  }
  piece.bytes = uint64_t{piece.shape.width} * piece.shape.height * piece.shape.depth;
  return piece;
}

}  // namespace fargpu::server

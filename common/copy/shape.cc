#include "common/copy/shape.h"

#include "common/copy/limits.h"

namespace fargpu::copy {

uint64_t span_of_rows(const Shape& shape, const Rows& rows) {
  if (shape.empty() || (shape.height > 1 && rows.pitch < shape.width)) return 0;
  uint64_t packed = 0, lines = 0, slices = 0, span = 0, end = 0;
  const bool too_large = __builtin_mul_overflow(shape.width, shape.height, &packed) ||
                         __builtin_mul_overflow(packed, shape.depth, &packed) ||
                         __builtin_mul_overflow(rows.pitch, shape.height - 1, &lines) ||
                         __builtin_mul_overflow(rows.slice, shape.depth - 1, &slices) ||
                         __builtin_add_overflow(lines, slices, &span) ||
                         __builtin_add_overflow(span, shape.width, &span) ||
                         __builtin_add_overflow(rows.address, span, &end);
  return too_large ? 0 : span;
}

bool place(const Part& part, const Shape& shape, Rows* rows) {
  *rows = {part.address, part.pitch, 0};
  if (shape.empty()) return true;
  uint64_t pitch = 0, height = 0, slice = 0, slices = 0, lines = 0;
  if (__builtin_add_overflow(part.x, shape.width, &pitch) ||
      __builtin_add_overflow(part.y, shape.height, &height) ||
      (part.pitch != 0 && part.pitch < pitch) || (part.height != 0 && part.height < height))
    return false;
  if (part.pitch != 0) pitch = part.pitch;
  if (part.height != 0) height = part.height;
  uint64_t begin = part.address;
  const bool is_too_far = __builtin_mul_overflow(pitch, height, &slice) ||
                          __builtin_mul_overflow(part.z, slice, &slices) ||
                          __builtin_mul_overflow(part.y, pitch, &lines) ||
                          __builtin_add_overflow(begin, slices, &begin) ||
                          __builtin_add_overflow(begin, lines, &begin) ||
                          __builtin_add_overflow(begin, part.x, &begin);
  *rows = {begin, pitch, slice};
  return !is_too_far;
}

bool is_possible(const Shape& shape, const ArrayPosition& position) {
  uint64_t end = 0;
  return span_of_rows(shape, dense(0, shape)) != 0 &&
         !__builtin_add_overflow(position.x, shape.width, &end) &&
         !__builtin_add_overflow(position.y, shape.height, &end) &&
         !__builtin_add_overflow(position.z, shape.depth, &end);
}

Piece piece_at(const Shape& shape, uint64_t offset, uint64_t limit) {
  const uint64_t row = offset / shape.width;
  Piece piece{shape, offset % shape.width, row % shape.height, row / shape.height, offset, 0};
  const uint64_t slice_bytes = shape.width * shape.height;
  if (piece.x != 0 || shape.width > limit) {
    piece.shape = {std::min(limit, shape.width - piece.x), 1, 1};
  } else if (piece.y == 0 && slice_bytes <= limit) {
    piece.shape.depth = std::min(limit / slice_bytes, shape.depth - piece.z);
  } else {
    piece.shape.height = std::min(limit / shape.width, shape.height - piece.y);
    piece.shape.depth = 1;
  }
  piece.bytes = piece.shape.bytes();
  return piece;
}

uint64_t count_pieces(const Shape& shape, uint64_t limit) {
  const auto parts = [](uint64_t all, uint64_t most) { return (all + most - 1) / most; };
  if (shape.width > limit) return parts(shape.width, limit) * shape.height * shape.depth;
  const uint64_t slice_bytes = shape.width * shape.height;
  if (slice_bytes > limit) return parts(shape.height, limit / shape.width) * shape.depth;
  return parts(shape.depth, limit / slice_bytes);
}

}  // namespace fargpu::copy

// The shape of a copy, and memory in which such a shape lies row by row. Sizes and distances are in
// bytes. Pure functions.
#pragma once

#include <algorithm>
#include <cstdint>

namespace fargpu::copy {

// `depth` slices of `height` rows of `width` bytes.
struct Shape {
  uint64_t width = 0;
  uint64_t height = 1;
  uint64_t depth = 1;

  bool empty() const { return width == 0 || height == 0 || depth == 0; }
  // Only of a shape whose span_of() is not 0.
  uint64_t bytes() const { return width * height * depth; }
  bool operator==(const Shape&) const = default;
};

// Linear memory. A shape of one row has no use for the pitches.
struct Rows {
  uint64_t address = 0;
  uint64_t pitch = 0;  // from row to row
  uint64_t slice = 0;  // from slice to slice

  Rows at(uint64_t x, uint64_t y, uint64_t z) const {
    return {address + z * slice + y * pitch + x, pitch, slice};
  }
  bool operator==(const Rows&) const = default;
};

// A part of linear memory, as CUDA_MEMCPY2D and CUDA_MEMCPY3D describe one side of a copy.
struct Part {
  uint64_t address = 0;          // of the memory
  uint64_t x = 0, y = 0, z = 0;  // where the part begins
  uint64_t pitch = 0;            // 0: rows end where the part does
  uint64_t height = 0;           // of a slice, in rows; 0: slices end where the part does
};

// A part of an array: that of its first byte, row, and slice or layer. `array`: its id; in the
// worker, from the moment a copy enters its stream, the driver's handle.
struct ArrayPosition {
  uint64_t array = 0;
  uint64_t x = 0, y = 0, z = 0;

  ArrayPosition at(uint64_t dx, uint64_t dy, uint64_t dz) const {
    return {array, x + dx, y + dy, z + dz};
  }
  bool operator==(const ArrayPosition&) const = default;
};

// Rows and slices without gaps.
inline Rows dense(uint64_t address, const Shape& shape) {
  return {address, shape.width, shape.width * shape.height};
}
inline bool is_dense(const Shape& shape, const Rows& rows) {
  return (shape.height == 1 || rows.pitch == shape.width) &&
         (shape.depth == 1 || rows.slice == shape.width * shape.height);
}

// How many bytes from the address on the shape spans. 0: it is empty, its rows overlap, it is
// larger than memory can be, or it runs over the end of the address space. Every shape is checked
// by this before it is used.
uint64_t span_of_rows(const Shape& shape, const Rows& rows);
inline uint64_t span_of(const Shape& shape, const Rows& rows) {
  // Most copies are a line.
  if (shape.height == 1 && shape.depth == 1) [[likely]]
    return rows.address + shape.width < rows.address ? 0 : shape.width;
  return span_of_rows(shape, rows);
}

// Where the shape lies that begins at the part. False: rows or slices are too short for it, which
// drivers refuse even of a single row or slice, or it begins beyond the end of the address space.
// An empty shape fits everywhere.
bool place(const Part& part, const Shape& shape, Rows* rows);

// False: the shape is empty, or larger than anything, or its end cannot be said.
bool is_possible(const Shape& shape, const ArrayPosition& position);

// How many rows lie in a slice; 0 when that is no whole number. Drivers describe slices so.
inline uint64_t rows_per_slice(const Shape& shape, const Rows& rows) {
  if (shape.depth == 1) return shape.height;
  return rows.pitch != 0 && rows.slice % rows.pitch == 0 ? rows.slice / rows.pitch : 0;
}
// Slices are whole rows and do not overlap: a driver copies the shape in one call.
inline bool has_whole_slices(const Shape& shape, const Rows& rows) {
  return shape.depth == 1 ||
         (rows.pitch >= shape.width && rows_per_slice(shape, rows) >= shape.height);
}

// A part of a shape that is a shape itself.
struct Piece {
  Shape shape;
  uint64_t x = 0, y = 0, z = 0;  // where it begins
  uint64_t offset = 0;           // of its first byte, in the packed bytes of the whole shape
  uint64_t bytes = 0;

  Rows of(const Rows& whole) const { return whole.at(x, y, z); }
  ArrayPosition of(const ArrayPosition& whole) const { return whole.at(x, y, z); }
};

// The piece of at most `limit` bytes (limit > 0) that begins `offset` bytes into the packed bytes
// of a shape that is not empty: whole slices if they fit, else whole rows, else a part of a row.
// `offset` is where an earlier piece ended.
Piece piece_at(const Shape& shape, uint64_t offset, uint64_t limit);

// Calls visit(piece) for the pieces of a shape until one returns something else than `Result{}`,
// which is then returned. `limit()`: the most bytes of the piece that is next.
template <typename Limit, typename Visit>
auto for_each_piece_up_to(const Shape& shape, Limit&& limit, Visit&& visit) {
  const uint64_t bytes = shape.bytes();
  Piece piece{shape, 0, 0, 0, 0, bytes};
  if (const uint64_t most = limit(); bytes > most) piece = piece_at(shape, 0, most);
  for (;;) {
    const auto result = visit(piece);
    const uint64_t end = piece.offset + piece.bytes;
    if (result != decltype(visit(piece)){} || end >= bytes) return result;
    piece = piece_at(shape, end, limit());
  }
}
template <typename Visit>
auto for_each_piece(const Shape& shape, uint64_t limit, Visit&& visit) {
  return for_each_piece_up_to(
      shape, [limit] { return limit; }, visit);
}

// Calls visit(address, bytes) for the parts of rows that `bytes` packed bytes from `offset` on
// stand for.
template <typename Visit>
void for_each_row(const Shape& shape, const Rows& rows, uint64_t offset, uint64_t bytes,
                  Visit&& visit) {
  uint64_t x = offset % shape.width;
  uint64_t y = offset / shape.width % shape.height;
  uint64_t z = offset / shape.width / shape.height;
  while (bytes > 0) {
    const uint64_t n = std::min(shape.width - x, bytes);
    visit(rows.address + z * rows.slice + y * rows.pitch + x, n);
    bytes -= n;
    x = 0;
    if (++y < shape.height) continue;
    y = 0;
    ++z;
  }
}

}  // namespace fargpu::copy

// What a copy is: a box of width (bytes) x height x depth between two sides. A side is an address
// with a pitch and a slice pitch. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fargpu::client {

struct Box {
  size_t width = 0;  // bytes
  size_t height = 1;
  size_t depth = 1;
  bool empty() const { return width == 0 || height == 0 || depth == 0; }
};

struct Side {
  uint64_t address = 0;
  size_t pitch = 0;  // bytes from row to row
  size_t slice = 0;  // bytes from slice to slice
};

// 1D.
inline Side flat(uint64_t address, size_t bytes) { return {address, bytes, bytes}; }
inline Box line(size_t bytes) { return {bytes, 1, 1}; }

// How many bytes from the address on the box spans; 0 when that does not fit into 64 bits or rows
// overlap.
uint64_t span_of(const Box& box, const Side& side);

// The packed bytes of a box from `offset` on, and back.
void pack_part(const Box& box, const Side& from, uint64_t offset, std::span<std::byte> packed);
void unpack_part(const Box& box, const Side& to, uint64_t offset,
                 std::span<const std::byte> packed);
// Packs a strided box row by row, and back. `packed` is box.width * height * depth long.
void pack(const Box& box, const Side& from, std::byte* packed);
void unpack(const Box& box, const Side& to, const std::byte* packed);

}  // namespace fargpu::client

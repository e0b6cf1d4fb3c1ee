#include "client/copy/pack.h"

#include <algorithm>
#include <cstring>

namespace fargpu::client {

uint64_t span_of(const Box& box, const Side& side) {
  if (box.empty()) return 0;
  uint64_t rows = 0, slices = 0, bytes = 0;
  if (box.height > 1 && side.pitch < box.width) return 0;
  if (__builtin_mul_overflow(side.pitch, box.height - 1, &rows)) return 0;
  if (__builtin_mul_overflow(side.slice, box.depth - 1, &slices)) return 0;
  if (__builtin_add_overflow(rows, slices, &bytes) ||
      __builtin_add_overflow(bytes, box.width, &bytes))
    return 0;
  uint64_t end = 0;
  return __builtin_add_overflow(side.address, bytes, &end) ? 0 : bytes;
}

void pack(const Box& box, const Side& from, std::byte* packed) {
  for (size_t z = 0; z < box.depth; ++z) {
    for (size_t y = 0; y < box.height; ++y, packed += box.width) {
      const uint64_t row = from.address + z * from.slice + y * from.pitch;
      std::memcpy(packed, reinterpret_cast<const void*>(row), box.width);
    }
  }
}

void unpack(const Box& box, const Side& to, const std::byte* packed) {
  for (size_t z = 0; z < box.depth; ++z) {
    for (size_t y = 0; y < box.height; ++y, packed += box.width) {
      const uint64_t row = to.address + z * to.slice + y * to.pitch;
      std::memcpy(reinterpret_cast<void*>(row), packed, box.width);
    }
  }
}

namespace {

// Calls visit(address, bytes) for the parts of rows that the packed bytes [offset, offset + bytes)
// stand for.
template <typename Visit>
void for_each_row(const Box& box, const Side& side, uint64_t offset, uint64_t bytes,
                  Visit&& visit) {
  while (bytes > 0) {
    const uint64_t row = offset / box.width, x = offset % box.width;
    const uint64_t y = row % box.height, z = row / box.height;
    const uint64_t n = std::min<uint64_t>(box.width - x, bytes);
    visit(side.address + z * side.slice + y * side.pitch + x, n);
    offset += n;
    bytes -= n;
  }
}

}  // namespace

void pack_part(const Box& box, const Side& from, uint64_t offset, std::span<std::byte> packed) {
  std::byte* to = packed.data();
  for_each_row(box, from, offset, packed.size(), [&to](uint64_t address, uint64_t bytes) {
    std::memcpy(to, reinterpret_cast<const void*>(address), bytes);
    to += bytes;
  });
}

void unpack_part(const Box& box, const Side& to, uint64_t offset,
                 std::span<const std::byte> packed) {
  const std::byte* from = packed.data();
  for_each_row(box, to, offset, packed.size(), [&from](uint64_t address, uint64_t bytes) {
    std::memcpy(reinterpret_cast<void*>(address), from, bytes);
    from += bytes;
  });
}

}  // namespace fargpu::client

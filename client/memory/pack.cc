#include <cstring>

#include "client/memory/copy.h"

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

}  // namespace fargpu::client

// Between a shape in the application's memory and its packed bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "common/copy/shape.h"

namespace fargpu::client {

// `packed`: the bytes from `offset` on.
inline void pack(const copy::Shape& shape, const copy::Rows& from, uint64_t offset,
                 std::span<std::byte> packed) {
  std::byte* to = packed.data();
  for_each_row(shape, from, offset, packed.size(), [&to](uint64_t address, uint64_t bytes) {
    std::memcpy(to, reinterpret_cast<const void*>(address), bytes);
    to += bytes;
  });
}
inline void unpack(const copy::Shape& shape, const copy::Rows& to, uint64_t offset,
                   std::span<const std::byte> packed) {
  const std::byte* from = packed.data();
  for_each_row(shape, to, offset, packed.size(), [&from](uint64_t address, uint64_t bytes) {
    std::memcpy(reinterpret_cast<void*>(address), from, bytes);
    from += bytes;
  });
}

}  // namespace fargpu::client

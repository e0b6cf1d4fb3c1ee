// Between a shape in the application's memory and its packed bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
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

// Memory for the packed bytes of one piece of a copy at a time. Small pieces cost no allocation,
// large ones one per copy if they do not grow.
class PackBuffer {
 public:
  PackBuffer() {}  // not `= default`: that would clear small_
  std::span<std::byte> of(uint64_t bytes) {
    if (bytes <= small_.size()) return std::span(small_).first(bytes);
    if (bytes > large_bytes_) {
      large_.reset();
      large_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
      large_bytes_ = bytes;
    }
    return {large_.get(), bytes};
  }

 private:
  std::array<std::byte, 2048> small_;
  std::unique_ptr<std::byte[]> large_;
  uint64_t large_bytes_ = 0;
};

}  // namespace fargpu::client

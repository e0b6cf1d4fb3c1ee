// Cap'n Proto's Data as spans of bytes, and back. Both only look at the memory of the other.
#pragma once

#include <capnp/blob.h>

#include <cstddef>
#include <span>

namespace fargpu::wire {

inline capnp::Data::Reader as_data(const void* bytes, size_t size) {
  return {static_cast<const kj::byte*>(bytes), size};
}

inline capnp::Data::Reader as_data(std::span<const std::byte> bytes) {
  return as_data(bytes.data(), bytes.size());
}

inline std::span<const std::byte> as_bytes(capnp::Data::Reader data) {
  return std::as_bytes(std::span(data.begin(), data.size()));
}

}  // namespace fargpu::wire

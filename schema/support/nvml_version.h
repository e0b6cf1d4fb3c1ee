// The first word of a versioned struct of NVML.
#pragma once

#include <cstdint>

namespace fargpu::schema {

// As NVML_STRUCT_VERSION makes it: the size of the layout, and its number in the top byte.
template <typename T>
constexpr uint32_t nvml_version(uint32_t number) {
  return static_cast<uint32_t>(sizeof(T)) | number << 24;
}
// The size that such a word names.
constexpr uint32_t nvml_struct_bytes(uint32_t version) { return version & 0xffffff; }

}  // namespace fargpu::schema

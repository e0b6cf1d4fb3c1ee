// How large the elements of CUDA arrays are. Pure functions.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace fargpu::schema {

// The bytes of an element; 0: the format has none of its own, since elements share blocks or lie in
// several planes, or it is not known.
inline size_t array_element_bytes(CUarray_format format, unsigned channels) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
    case CU_AD_FORMAT_UNORM_INT8X1:
    case CU_AD_FORMAT_UNORM_INT8X2:
    case CU_AD_FORMAT_UNORM_INT8X4:
    case CU_AD_FORMAT_SNORM_INT8X1:
    case CU_AD_FORMAT_SNORM_INT8X2:
    case CU_AD_FORMAT_SNORM_INT8X4:
      return channels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
    case CU_AD_FORMAT_UNORM_INT16X1:
    case CU_AD_FORMAT_UNORM_INT16X2:
    case CU_AD_FORMAT_UNORM_INT16X4:
    case CU_AD_FORMAT_SNORM_INT16X1:
    case CU_AD_FORMAT_SNORM_INT16X2:
    case CU_AD_FORMAT_SNORM_INT16X4:
      return size_t{2} * channels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return size_t{4} * channels;
    default:
      return 0;
  }
}

// At most so many bits each, on the average over a block or the planes.
inline uint64_t array_element_bits(CUarray_format format, unsigned channels) {
  if (const size_t bytes = array_element_bytes(format, channels); bytes != 0) return 8 * bytes;
  switch (static_cast<int>(format)) {
    case CU_AD_FORMAT_NV12:
      return 12;
    case 0x91:  // BC1, BC4: eight bytes for 16 elements
    case 0x92:
    case 0x97:
    case 0x98:
      return 4;
    case 0x9f:  // 4:2:0 of two bytes
    case 0xa1:
    case 0xb2:  // 4:4:4 of one byte
    case 0xb4:
      return 24;
    case 0xa2:  // 4:2:2 of one byte
    case 0xa5:
      return 16;
    case 0xa3:  // 4:2:2 of two bytes, or four bytes
    case 0xa4:
    case 0xa6:
    case 0xa7:
    case 0xa8:
    case 0xa9:
    case 0x50:
      return 32;
    case 0xb3:  // 4:4:4 of two bytes
    case 0xb5:
      return 48;
    case 0xb1:
      return 64;
    default:  // the other compressed ones: 16 bytes for 16 elements
      return format >= 0x91 && format <= 0x9e ? 8 : 128;
  }
}

// What the elements of an array and of its mipmap levels take; UINT64_MAX: more than that.
inline uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR& descriptor, unsigned levels = 1) {
  const bool layers = (descriptor.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
  const uint64_t bits = array_element_bits(descriptor.Format, descriptor.NumChannels);
  uint64_t width = descriptor.Width, height = descriptor.Height, depth = descriptor.Depth, sum = 0;
  for (unsigned level = 0; level < levels; ++level) {
    uint64_t bytes = std::max<uint64_t>(width, 1);
    if (__builtin_mul_overflow(bytes, std::max<uint64_t>(height, 1), &bytes) ||
        __builtin_mul_overflow(bytes, std::max<uint64_t>(depth, 1), &bytes) ||
        __builtin_mul_overflow(bytes, bits, &bytes) ||
        __builtin_add_overflow(sum, bytes / 8 + (bytes % 8 != 0 ? 1 : 0), &sum))
      return UINT64_MAX;
    if (width <= 1 && height <= 1 && (layers || depth <= 1)) break;
    width /= 2;
    height /= 2;
    if (!layers) depth /= 2;
  }
  return sum;
}

}  // namespace fargpu::schema

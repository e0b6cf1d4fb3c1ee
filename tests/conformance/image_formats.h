// Every format and shape of arrays that kernels read through textures and surfaces, and what lies
// in them: values that are computed, so that a program knows what a kernel must read.
#pragma once

#include <bit>
#include <cmath>
#include <limits>

#include "tests/conformance/textures.h"

enum class Values { kUnsigned, kSigned, kUnorm, kSnorm, kHalf, kFloat };

struct Format {
  std::string name;
  CUarray_format format;
  Values values;
  unsigned bytes;  // of a channel
  unsigned channels;

  bool has_integers() const { return values == Values::kUnsigned || values == Values::kSigned; }
  bool has_floats() const { return values == Values::kHalf || values == Values::kFloat; }
  bool is_signed() const { return values == Values::kSigned || values == Values::kSnorm; }
  unsigned element_bytes() const { return bytes * channels; }
};

inline std::vector<Format> all_formats() {
  struct Family {
    const char* name;
    CUarray_format first;
    Values values;
    unsigned bytes;
    bool numbered;  // the format of two channels is the next one
  };
  constexpr Family kFamilies[] = {{"u8", CU_AD_FORMAT_UNSIGNED_INT8, Values::kUnsigned, 1, false},
                                  {"s8", CU_AD_FORMAT_SIGNED_INT8, Values::kSigned, 1, false},
                                  {"u16", CU_AD_FORMAT_UNSIGNED_INT16, Values::kUnsigned, 2, false},
                                  {"s16", CU_AD_FORMAT_SIGNED_INT16, Values::kSigned, 2, false},
                                  {"u32", CU_AD_FORMAT_UNSIGNED_INT32, Values::kUnsigned, 4, false},
                                  {"s32", CU_AD_FORMAT_SIGNED_INT32, Values::kSigned, 4, false},
                                  {"f16", CU_AD_FORMAT_HALF, Values::kHalf, 2, false},
                                  {"f32", CU_AD_FORMAT_FLOAT, Values::kFloat, 4, false},
                                  {"unorm8", CU_AD_FORMAT_UNORM_INT8X1, Values::kUnorm, 1, true},
                                  {"unorm16", CU_AD_FORMAT_UNORM_INT16X1, Values::kUnorm, 2, true},
                                  {"snorm8", CU_AD_FORMAT_SNORM_INT8X1, Values::kSnorm, 1, true},
                                  {"snorm16", CU_AD_FORMAT_SNORM_INT16X1, Values::kSnorm, 2, true}};
  std::vector<Format> formats;
  for (const Family& family : kFamilies) {
    for (unsigned power = 0; power < 3; ++power) {
      const unsigned number = family.first + (family.numbered ? power : 0);
      formats.push_back({family.name + ("x" + std::to_string(1u << power)),
                         static_cast<CUarray_format>(number), family.values, family.bytes,
                         1u << power});
    }
  }
  return formats;
}

// By the name that PTX has for the geometry.
struct Shape {
  const char* name;
  unsigned dimensions;  // of a place in it, without the layer
  unsigned width, height, depth;
  unsigned flags;

  unsigned rows() const { return height == 0 ? 1 : height; }
  unsigned slices() const { return depth == 0 ? 1 : depth; }  // also layers and faces
  unsigned elements() const { return width * rows() * slices(); }
  bool is_layered() const { return (flags & CUDA_ARRAY3D_LAYERED) != 0; }
  bool is_cube() const { return (flags & CUDA_ARRAY3D_CUBEMAP) != 0; }
};
inline constexpr Shape kShapes[] = {
    {"1d", 1, 8, 0, 0, 0},
    {"2d", 2, 8, 4, 0, 0},
    {"3d", 3, 8, 4, 2, 0},
    {"a1d", 1, 8, 0, 3, CUDA_ARRAY3D_LAYERED},
    {"a2d", 2, 8, 4, 3, CUDA_ARRAY3D_LAYERED},
    {"cube", 3, 4, 4, 6, CUDA_ARRAY3D_CUBEMAP},
    {"acube", 3, 4, 4, 12, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED}};

// An element by its number, and back.
struct Place {
  unsigned x, y, z;
};
inline Place place_of(const Shape& shape, unsigned i) {
  return {i % shape.width, i / shape.width % shape.rows(), i / shape.width / shape.rows()};
}

// The half of a number that is a small multiple of 1/4.
inline uint16_t half_of(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (value == 0) return 0;
  return static_cast<uint16_t>((bits >> 16 & 0x8000u) | ((bits >> 23 & 0xffu) - 112) << 10 |
                               (bits >> 13 & 0x3ffu));
}

// What lies in a channel: every third element holds an end of the format's range, or a value next
// to one. `plain`: floats are multiples of 1/4 instead, of which sums are exact in any format.
inline uint32_t content(const Format& format, unsigned element, unsigned channel, bool plain) {
  constexpr uint32_t k8[] = {0, 1, 0x7f, 0x80, 0x81, 0xff};
  constexpr uint32_t k16[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
  constexpr uint32_t k32[] = {0, 1, 0x7fffffff, 0x80000000, 0x80000001, 0xffffffff};
  constexpr uint32_t kHalf[] = {0, 0x0001, 0x0400, 0x7bff, 0x7c00, 0xfc00};  // least to infinite
  constexpr uint32_t kFloat[] = {0, 0x00800000, 0x3dcccccd, 0x7f7fffff, 0x7f800000, 0xff800000};
  const unsigned mixed = (element * 5 + channel * 19 + 3) * 2654435761u;
  const bool at_end = element % 3 == 0;
  const unsigned end = (element / 3 + channel) % 6;
  if (format.has_floats()) {
    const bool half = format.values == Values::kHalf;
    if (at_end && !plain) return half ? kHalf[end] : kFloat[end];
    const float value = static_cast<float>(mixed >> 24) * 0.25f - 16;
    return half ? half_of(value) : std::bit_cast<uint32_t>(value);
  }
  if (at_end) return format.bytes == 1 ? k8[end] : format.bytes == 2 ? k16[end] : k32[end];
  return mixed >> (32 - 8 * format.bytes);
}

// A host image of all elements of a shape.
inline std::vector<unsigned char> contents(const Format& format, const Shape& shape, bool plain) {
  std::vector<unsigned char> host(size_t{shape.elements()} * format.element_bytes());
  for (unsigned i = 0; i < shape.elements(); ++i) {
    for (unsigned c = 0; c < format.channels; ++c) {
      const uint32_t bits = content(format, i, c, plain);
      std::memcpy(&host[size_t{i} * format.element_bytes() + size_t{c} * format.bytes], &bits,
                  format.bytes);
    }
  }
  return host;
}

// Of a channel's bits, as integers are widened to a register.
inline uint32_t widened(const Format& format, uint32_t bits) {
  if (!format.is_signed() || format.bytes == 4) return bits;
  const unsigned unused = 32 - 8 * format.bytes;
  return static_cast<uint32_t>(static_cast<int32_t>(bits << unused) >> unused);
}

// The number in a channel: of integers and normalised formats the share of the largest one, from 0
// or -1 to 1.
inline double number_of(const Format& format, uint32_t bits) {
  if (format.values == Values::kFloat) return std::bit_cast<float>(bits);
  if (format.values == Values::kHalf) {
    const int exponent = static_cast<int>(bits >> 10 & 0x1fu);
    const double fraction = bits & 0x3ffu, sign = (bits & 0x8000u) != 0 ? -1 : 1;
    if (exponent == 31) return sign * std::numeric_limits<double>::infinity();
    return sign *
           (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
  }
  const double largest = std::ldexp(1, 8 * static_cast<int>(format.bytes)) - 1;
  if (!format.is_signed()) return bits / largest;
  return std::max(static_cast<int32_t>(widened(format, bits)) / ((largest - 1) / 2), -1.0);
}

inline CUarray array_of(const Format& format, const Shape& shape, unsigned flags = 0) {
  CUDA_ARRAY3D_DESCRIPTOR d{};
  d.Width = shape.width;
  d.Height = shape.height;
  d.Depth = shape.depth;
  d.Format = format.format;
  d.NumChannels = format.channels;
  d.Flags = shape.flags | flags;
  CUarray array = nullptr;
  NEED(cuArray3DCreate(&array, &d));
  return array;
}

inline void fill(CUarray array, const Format& format, const Shape& shape, bool plain) {
  std::vector<unsigned char> host = contents(format, shape, plain);
  const CUDA_MEMCPY3D copy =
      whole_copy(array, host.data(), size_t{shape.width} * format.element_bytes(), true);
  NEED(cuMemcpy3D(&copy));
}

// What a kernel read that is not what CUDA says; the first few of them are told.
inline unsigned wrong_values = 0;
inline void wrong(const std::string& where, double got, double wanted) {
  if (++wrong_values <= 20)
    std::printf("  wrong: %s: %.9g, wanted %.9g\n", where.c_str(), got, wanted);
}

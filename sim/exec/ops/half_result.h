// The effect of the modifiers of f16 and bf16 operations on a result. Pure.
#pragma once

#include <cstdint>

#include "sim/exec/half.h"
#include "sim/image/half_math.h"

namespace fargpu::sim {

// Applies the modifiers to a result: NaN and limits.
template <typename Format>
inline uint16_t finish_half(uint16_t bits, uint64_t flags) {
  constexpr uint32_t kInfinity = Format::kInfinity;
  const uint32_t magnitude = bits & 0x7fffu;
  const bool negative = (bits & 0x8000u) != 0, nan = magnitude > kInfinity;
  if ((flags & kHalfFlush) != 0 && magnitude < (1u << Format::kFraction)) bits &= 0x8000u;
  if ((flags & kHalfSaturate) != 0) {
    constexpr uint32_t kOne = static_cast<uint32_t>(Format::kBias) << Format::kFraction;
    if (nan || negative) return 0;
    return static_cast<uint16_t>(magnitude > kOne ? kOne : bits);
  }
  if ((flags & kHalfRelu) != 0) {
    if (nan) return 0x7fff;
    if (negative) return 0;
  }
  if ((flags & kHalfFinite) != 0 && magnitude == kInfinity)
    return static_cast<uint16_t>((bits & 0x8000u) | (kInfinity - 1));
  return bits;
}

}  // namespace fargpu::sim

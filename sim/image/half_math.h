// f16 and bf16 as values: exact to float, and rounded once from double. Pure.
#pragma once

#include <bit>
#include <cstdint>

namespace fargpu::sim {

enum class HalfRounding : uint8_t { kNearest, kZero, kDown, kUp, kAway };

struct F16 {
  static constexpr int kFraction = 10, kBias = 15;  // bits of the fraction, bias of the exponent
  static constexpr uint32_t kInfinity = 0x7c00;
};
struct Bf16 {
  static constexpr int kFraction = 7, kBias = 127;
  static constexpr uint32_t kInfinity = 0x7f80;
};

// The number in `bits`, exactly.
template <typename Format>
inline float half_to_float(uint16_t bits) {
  if constexpr (Format::kFraction == 7) return std::bit_cast<float>(uint32_t{bits} << 16);
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t exponent = bits >> 10 & 0x1fu, fraction = bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
}

// `value` in a binary format with one sign bit, rounded once. Overflow gives infinity or the
// largest number, as the rounding says; not a number gives all ones below the sign.
template <typename Format>
inline uint16_t double_to_half(double value, HalfRounding rounding) {
  constexpr int kBias = Format::kBias, kShift = 52 - Format::kFraction;
  constexpr uint32_t kInfinity = Format::kInfinity;
  const auto bits = std::bit_cast<uint64_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 48 & 0x8000u);
  const uint64_t magnitude = bits & ~(uint64_t{1} << 63);
  if (magnitude > 0x7ff0000000000000u) return 0x7fff;
  if (magnitude == 0x7ff0000000000000u) return static_cast<uint16_t>(sign | kInfinity);
  if (magnitude == 0) return sign;
  const int exponent = static_cast<int>(magnitude >> 52) - 1023;
  uint64_t significand =
      (magnitude & 0xfffffffffffffu) | (magnitude >> 52 != 0 ? uint64_t{1} << 52 : 0);
  int drop = kShift;
  int field = exponent + kBias;  // biased exponent of the result
  if (field < 1) {               // below the normal numbers: fewer bits stay
    drop += 1 - field;
    field = 0;
  }
  uint64_t kept = 0, lost = 0, half = 0;
  if (drop >= 64) {
    lost = 1;  // far below the smallest number: only that something is lost counts
    half = 2;
  } else {
    kept = significand >> drop;
    lost = significand & ((uint64_t{1} << drop) - 1);
    half = uint64_t{1} << (drop - 1);
  }
  bool up = false;
  switch (rounding) {
    case HalfRounding::kNearest:
      up = lost > half || (lost == half && (kept & 1u) != 0);
      break;
    case HalfRounding::kAway:
      up = lost >= half;
      break;
    case HalfRounding::kZero:
      break;
    case HalfRounding::kDown:
      up = sign != 0 && lost != 0;
      break;
    case HalfRounding::kUp:
      up = sign == 0 && lost != 0;
      break;
  }
  kept += up ? 1 : 0;
  // The hidden bit of normal numbers is part of kept; a carry moves into the exponent by itself.
  uint64_t result =
      field == 0 ? kept : kept + (static_cast<uint64_t>(field - 1) << Format::kFraction);
  if (result >= kInfinity) {
    const bool to_largest = rounding == HalfRounding::kZero ||
                            (rounding == HalfRounding::kDown && sign == 0) ||
                            (rounding == HalfRounding::kUp && sign != 0);
    result = to_largest ? kInfinity - 1 : kInfinity;
  }
  return static_cast<uint16_t>(sign | result);
}

// a * b + c of numbers that have at most 24 bits, as a double that rounds like the exact result:
// where bits are lost, the last one is made odd.
inline double fused_odd(double a, double b, double c) {
  const double product = a * b;  // exact
  const double sum = product + c;
  const double back = sum - product;
  const double error = (product - (sum - back)) + (c - back);
  if (error == 0 || !(sum - sum == 0)) return sum;
  auto bits = std::bit_cast<uint64_t>(sum);
  if ((bits & 1u) != 0) return sum;
  // Odd neighbour on the side of the error.
  const bool away = (error > 0) == (sum > 0);
  bits = away ? bits + 1 : bits - 1;
  return std::bit_cast<double>(bits);
}

}  // namespace fargpu::sim

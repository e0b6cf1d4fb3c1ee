// f16 and bf16 arithmetic, alone and in pairs, and conversions to and from them. Everything is
// computed in double, where sums, products, quotients and roots of such short numbers round once
// more without harm, and fused products get an odd last bit.
#include <cmath>
#include <cstring>
#include <string>

#define FARGPU_SIM_ISA isa_common
#include "sim/exec/ops/half_result.h"
#include "sim/exec/ops/lanes.h"
#include "sim/exec/ops/ops.h"

namespace fargpu::sim {
namespace {

using namespace isa_common;  // NOLINT: the lane templates of this file's build

template <typename F>
double widen(uint16_t bits, uint64_t flags) {
  if ((flags & kHalfFlush) != 0 && (bits & 0x7fffu) < (1u << F::kFraction)) bits &= 0x8000u;
  return static_cast<double>(half_to_float<F>(bits));
}
template <typename F>
uint16_t narrow(double value, uint64_t flags) {
  return finish_half<F>(double_to_half<F>(value, HalfRounding::kNearest), flags);
}
template <typename F>
bool is_nan(uint16_t bits) {
  return (bits & 0x7fffu) > F::kInfinity;
}

struct Add {
  template <typename F>
  static uint16_t run(uint16_t a, uint16_t b, uint16_t, uint64_t f) {
    return narrow<F>(widen<F>(a, f) + widen<F>(b, f), f);
  }
};
struct Subtract {
  template <typename F>
  static uint16_t run(uint16_t a, uint16_t b, uint16_t, uint64_t f) {
    return narrow<F>(widen<F>(a, f) - widen<F>(b, f), f);
  }
};
struct Multiply {
  template <typename F>
  static uint16_t run(uint16_t a, uint16_t b, uint16_t, uint64_t f) {
    return narrow<F>(widen<F>(a, f) * widen<F>(b, f), f);
  }
};
struct Fused {
  template <typename F>
  static uint16_t run(uint16_t a, uint16_t b, uint16_t c, uint64_t f) {
    return narrow<F>(fused_odd(widen<F>(a, f), widen<F>(b, f), widen<F>(c, f)), f);
  }
};
struct Negate {
  template <typename F>
  static uint16_t run(uint16_t a, uint16_t, uint16_t, uint64_t f) {
    return finish_half<F>(static_cast<uint16_t>(a ^ 0x8000u), f);
  }
};
struct Absolute {
  template <typename F>
  static uint16_t run(uint16_t a, uint16_t, uint16_t, uint64_t f) {
    return finish_half<F>(static_cast<uint16_t>(a & 0x7fffu), f);
  }
};
template <bool kMax>
struct Extreme {
  template <typename F>
  static uint16_t run(uint16_t a, uint16_t b, uint16_t, uint64_t f) {
    const uint16_t sign = (f & kHalfXorSign) != 0 ? (a ^ b) & 0x8000u : 0;
    if ((f & kHalfXorSign) != 0) a &= 0x7fffu, b &= 0x7fffu;
    a = finish_half<F>(a, f & kHalfFlush);
    b = finish_half<F>(b, f & kHalfFlush);
    const bool na = is_nan<F>(a), nb = is_nan<F>(b);
    if ((f & kHalfNan) != 0 && (na || nb)) return 0x7fff;
    if (na && nb) return 0x7fff;
    uint16_t r = 0;
    if (na)
      r = b;
    else if (nb)
      r = a;
    else {
      const float x = half_to_float<F>(a), y = half_to_float<F>(b);
      if (x == y)
        r = kMax ? a & b : a | b;
      else
        r = (kMax ? x > y : x < y) ? a : b;
    }
    return r | sign;
  }
};
struct Exponential {
  template <typename F>
  static uint16_t run(uint16_t a, uint16_t, uint16_t, uint64_t f) {
    return narrow<F>(std::exp2(widen<F>(a, f)), f);
  }
};
struct Tangent {
  template <typename F>
  static uint16_t run(uint16_t a, uint16_t, uint16_t, uint64_t f) {
    return narrow<F>(std::tanh(widen<F>(a, f)), f);
  }
};

template <typename Op, typename F, typename T>
void half_lanes(Exec& x, const Instr& in) {
  T* d = x.at<T>(in.dst);
  const T* a = x.at<T>(in.a);
  const T* b = in.b == kNoOperand ? a : x.at<T>(in.b);
  const T* c = in.c == kNoOperand ? a : x.at<T>(in.c);
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((x.mask >> l & 1u) == 0) continue;
    T result = Op::template run<F>(static_cast<uint16_t>(a[l]), static_cast<uint16_t>(b[l]),
                                   static_cast<uint16_t>(c[l]), in.imm);
    if constexpr (sizeof(T) == 4) {
      result |= uint32_t{Op::template run<F>(static_cast<uint16_t>(a[l] >> 16),
                                             static_cast<uint16_t>(b[l] >> 16),
                                             static_cast<uint16_t>(c[l] >> 16), in.imm)}
                << 16;
    }
    d[l] = result;
  }
}

template <typename F>
void to_float(Exec& x, const Instr& in) {
  float* d = x.at<float>(in.dst);
  const uint16_t* a = x.at<uint16_t>(in.a);
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((x.mask >> l & 1u) != 0) d[l] = static_cast<float>(widen<F>(a[l], in.imm));
  }
}
template <typename F>
void to_double(Exec& x, const Instr& in) {
  double* d = x.at<double>(in.dst);
  const uint16_t* a = x.at<uint16_t>(in.a);
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((x.mask >> l & 1u) != 0) d[l] = widen<F>(a[l], in.imm);
  }
}
template <typename F>
void from_double(Exec& x, const Instr& in) {
  uint16_t* d = x.at<uint16_t>(in.dst);
  const double* a = x.at<double>(in.a);
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((x.mask >> l & 1u) != 0) {
      d[l] = finish_half<F>(double_to_half<F>(a[l], static_cast<HalfRounding>(in.sub)), in.imm);
    }
  }
}
// Two floats to a pair: a above, b below.
template <typename F>
void pair_from_floats(Exec& x, const Instr& in) {
  uint32_t* d = x.at<uint32_t>(in.dst);
  const float *a = x.at<float>(in.a), *b = x.at<float>(in.b);
  const auto one = [&](float v) {
    return finish_half<F>(
        double_to_half<F>(static_cast<double>(v), static_cast<HalfRounding>(in.sub)), in.imm);
  };
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((x.mask >> l & 1u) != 0) d[l] = uint32_t{one(a[l])} << 16 | one(b[l]);
  }
}

// 64-bit integers to double with an odd last bit where bits are lost.
template <typename T>
void odd_double(Exec& x, const Instr& in) {
  double* d = x.at<double>(in.dst);
  const T* a = x.at<T>(in.a);
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((x.mask >> l & 1u) == 0) continue;
    const bool negative = std::is_signed_v<T> && a[l] < 0;
    auto magnitude = static_cast<uint64_t>(a[l]);
    if (negative) magnitude = 0 - magnitude;
    if (magnitude >> 53 != 0)
      magnitude = (magnitude & ~uint64_t{0x7ff}) | ((magnitude & 0x7ff) != 0 ? 0x800 : 0);
    const auto value = static_cast<double>(magnitude);
    d[l] = negative ? -value : value;
  }
}

// Ten bits of fraction stay. sub: the rounding.
void to_tf32(Exec& x, const Instr& in) {
  uint32_t* d = x.at<uint32_t>(in.dst);
  const uint32_t* a = x.at<uint32_t>(in.a);
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((x.mask >> l & 1u) == 0) continue;
    uint32_t v = a[l];
    const bool nan = (v & 0x7fffffffu) > 0x7f800000u;
    if (nan) {
      v = 0x7fffffffu;
    } else if ((v & 0x7f800000u) != 0x7f800000u) {
      if (in.sub == 4)
        v += 0x1000u;
      else if (in.sub == 0)
        v += 0xfffu + (v >> 13 & 1u);
      v &= ~0x1fffu;
      if ((in.imm & kHalfFinite) != 0 && (v & 0x7fffffffu) == 0x7f800000u)
        v = (v & 0x80000000u) | 0x7f7fe000u;
    }
    if ((in.imm & kHalfRelu) != 0 && !nan && v >> 31 != 0) v = 0;
    d[l] = v;
  }
}

// One 8-bit float: kFraction bits of fraction; e4m3 has no infinity, its largest number is 448
// (the code after it stands for overflow while rounding).
struct E4m3 {
  static constexpr int kFraction = 3, kBias = 7;
  static constexpr uint32_t kInfinity = 0x7f, kLargest = 0x7e, kNan = 0x7f;
};
struct E5m2 {
  static constexpr int kFraction = 2, kBias = 15;
  static constexpr uint32_t kInfinity = 0x7c, kLargest = 0x7b, kNan = 0x7f;
};
template <typename F>
uint32_t to_f8(double value, uint64_t flags) {
  if (value != value) return F::kNan;
  const uint32_t sign = std::signbit(value) ? 0x80u : 0u;
  if ((flags & kHalfRelu) != 0 && sign != 0) return 0;
  // The common rounding works on any format: the magnitude is the code.
  const uint32_t code = double_to_half<F>(std::fabs(value), HalfRounding::kNearest);
  return sign | (code > F::kLargest ? F::kLargest : code);
}
template <typename F>
double from_f8(uint32_t bits) {
  const uint32_t magnitude = bits & 0x7fu;
  const int exponent = static_cast<int>(magnitude >> F::kFraction);
  const auto fraction = static_cast<double>(magnitude & ((1u << F::kFraction) - 1));
  double value = 0;
  if (magnitude > F::kLargest)
    value = F::kFraction == 2 && magnitude == 0x7c ? HUGE_VAL : NAN;
  else if (exponent == 0)
    value = std::ldexp(fraction, 1 - F::kBias - F::kFraction);
  else
    value = std::ldexp(fraction + (1 << F::kFraction), exponent - F::kBias - F::kFraction);
  return (bits & 0x80u) != 0 ? -value : value;
}
template <typename F>
void f8_from_floats(Exec& x, const Instr& in) {
  uint16_t* d = x.at<uint16_t>(in.dst);
  const float *a = x.at<float>(in.a), *b = x.at<float>(in.b);
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((x.mask >> l & 1u) == 0) continue;
    d[l] = static_cast<uint16_t>(to_f8<F>(a[l], in.imm) << 8 | to_f8<F>(b[l], in.imm));
  }
}
template <typename F>
void f8_from_halves(Exec& x, const Instr& in) {
  uint16_t* d = x.at<uint16_t>(in.dst);
  const uint32_t* a = x.at<uint32_t>(in.a);
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((x.mask >> l & 1u) == 0) continue;
    d[l] = static_cast<uint16_t>(to_f8<F>(widen<F16>(static_cast<uint16_t>(a[l] >> 16), 0), in.imm)
                                     << 8 |
                                 to_f8<F>(widen<F16>(static_cast<uint16_t>(a[l]), 0), in.imm));
  }
}
template <typename F>
void halves_from_f8(Exec& x, const Instr& in) {
  uint32_t* d = x.at<uint32_t>(in.dst);
  const uint16_t* a = x.at<uint16_t>(in.a);
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((x.mask >> l & 1u) == 0) continue;
    d[l] = uint32_t{narrow<F16>(from_f8<F>(a[l] >> 8), in.imm)} << 16 |
           narrow<F16>(from_f8<F>(a[l] & 0xffu), in.imm);
  }
}

void half_part(Exec& x, const Instr& in) {
  uint16_t* d = x.at<uint16_t>(in.dst);
  const uint32_t* a = x.at<uint32_t>(in.a);
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((x.mask >> l & 1u) != 0) d[l] = static_cast<uint16_t>(a[l] >> (in.imm * 16));
  }
}

// cvt.pack: two values clamped; the pair goes below what c holds (bytes) or makes up the whole (16
// bits).
template <int kLow, int kHigh, unsigned kBits>
void pack_saturated(Exec& x, const Instr& in) {
  uint32_t* d = x.at<uint32_t>(in.dst);
  const int32_t *a = x.at<int32_t>(in.a), *b = x.at<int32_t>(in.b);
  const uint32_t* c = in.c == kNoOperand ? nullptr : x.at<uint32_t>(in.c);
  const auto one = [](int32_t v) {
    return static_cast<uint32_t>(v < kLow ? kLow : v > kHigh ? kHigh : v) & ((1u << kBits) - 1);
  };
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((x.mask >> l & 1u) == 0) continue;
    const uint32_t pair = one(a[l]) << kBits | one(b[l]);
    d[l] = c == nullptr ? pair : c[l] << (kBits == 8 ? 16 : 0) | pair;
  }
}

// add, sub, mul, fma of two floats in a 64-bit register.
struct PairAdd {
  static float run(float a, float b, float) { return a + b; }
};
struct PairMultiply {
  static float run(float a, float b, float) { return a * b; }
};
struct PairFused {
  static float run(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
};
struct PairSubtract {
  static float run(float a, float b, float) { return a - b; }
};
template <typename Op>
void float_pairs(Exec& x, const Instr& in) {
  float* d = x.at<float>(in.dst);
  const float *a = x.at<float>(in.a), *b = x.at<float>(in.b);
  const float* c = in.c == kNoOperand ? a : x.at<float>(in.c);
  const FloatScope scope(in.float_control);
  for (uint32_t i = 0; i < 2 * kLanes; ++i) {
    if ((x.mask >> i / 2 & 1u) != 0) d[i] = Op::run(a[i], b[i], c[i]);
  }
}

template <typename F>
void add_format(OpTable& table, const std::string& name) {
  const auto both = [&](const char* op, Handler single, Handler packed) {
    table.add(std::string(op) + "." + name, single);
    table.add(std::string(op) + "." + name + "x2", packed);
  };
  both("add", half_lanes<Add, F, uint16_t>, half_lanes<Add, F, uint32_t>);
  both("sub", half_lanes<Subtract, F, uint16_t>, half_lanes<Subtract, F, uint32_t>);
  both("mul", half_lanes<Multiply, F, uint16_t>, half_lanes<Multiply, F, uint32_t>);
  both("fma", half_lanes<Fused, F, uint16_t>, half_lanes<Fused, F, uint32_t>);
  both("neg", half_lanes<Negate, F, uint16_t>, half_lanes<Negate, F, uint32_t>);
  both("abs", half_lanes<Absolute, F, uint16_t>, half_lanes<Absolute, F, uint32_t>);
  both("min", half_lanes<Extreme<false>, F, uint16_t>, half_lanes<Extreme<false>, F, uint32_t>);
  both("max", half_lanes<Extreme<true>, F, uint16_t>, half_lanes<Extreme<true>, F, uint32_t>);
  both("ex2", half_lanes<Exponential, F, uint16_t>, half_lanes<Exponential, F, uint32_t>);
  both("tanh", half_lanes<Tangent, F, uint16_t>, half_lanes<Tangent, F, uint32_t>);
  table.add("cvt.f32." + name, to_float<F>);
  table.add("cvt.f64." + name, to_double<F>);
  table.add("cvt." + name + ".f64", from_double<F>);
  table.add("cvt." + name + "x2.f32", pair_from_floats<F>);
}

}  // namespace

void add_half_ops(OpTable& table) {
  add_format<F16>(table, "f16");
  add_format<Bf16>(table, "bf16");
  table.add("cvt.odd.u64", odd_double<uint64_t>);
  table.add("cvt.odd.s64", odd_double<int64_t>);
  table.add("cvt.tf32.f32", to_tf32);
  table.add("cvt.e4m3x2.f32", f8_from_floats<E4m3>);
  table.add("cvt.e5m2x2.f32", f8_from_floats<E5m2>);
  table.add("cvt.e4m3x2.f16x2", f8_from_halves<E4m3>);
  table.add("cvt.e5m2x2.f16x2", f8_from_halves<E5m2>);
  table.add("cvt.f16x2.e4m3x2", halves_from_f8<E4m3>);
  table.add("cvt.f16x2.e5m2x2", halves_from_f8<E5m2>);
  table.add("half.part", half_part);
  table.add("cvt.pack.u16", pack_saturated<0, 65535, 16>);
  table.add("cvt.pack.s16", pack_saturated<-32768, 32767, 16>);
  table.add("cvt.pack.u8", pack_saturated<0, 255, 8>);
  table.add("cvt.pack.s8", pack_saturated<-128, 127, 8>);
  table.add("add.f32x2", float_pairs<PairAdd>);
  table.add("sub.f32x2", float_pairs<PairSubtract>);
  table.add("mul.f32x2", float_pairs<PairMultiply>);
  table.add("fma.f32x2", float_pairs<PairFused>);
}

}  // namespace fargpu::sim

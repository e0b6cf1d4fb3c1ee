// Conversions among integers, f32 and f64. Values of 8 bits live in 16-bit registers, extended by
// their own sign.
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "sim/exec/ops/lanes.h"
#include "sim/exec/ops/ops.h"

namespace fargpu::sim::FARGPU_SIM_ISA {
namespace {

// The register of a type: itself, but 16 bits for 8.
template <typename T>
using reg_t = std::conditional_t<sizeof(T) == 1,
                                 std::conditional_t<std::is_signed_v<T>, int16_t, uint16_t>, T>;

template <typename D, typename S>
struct Resize {
  static reg_t<D> run(reg_t<S> a) {
    return static_cast<reg_t<D>>(static_cast<D>(static_cast<S>(a)));
  }
};
// Into the range of a narrower type or one of the other signedness: imm is its largest value, sub
// whether it is signed.
template <typename S>
void clamp(Exec& x, const Instr& in) {
  reg_t<S>* d = x.at<reg_t<S>>(in.dst);
  const reg_t<S>* a = x.at<reg_t<S>>(in.a);
  const uint64_t high = in.imm;
  const int64_t low = in.sub != 0 ? -static_cast<int64_t>(high) - 1 : 0;
  alignas(64) reg_t<S> t[kLanes];
  for (uint32_t l = 0; l < kLanes; ++l) {
    const S v = static_cast<S>(a[l]);
    if constexpr (std::is_signed_v<S>) {
      const int64_t wide = v < low ? low : v;
      t[l] = static_cast<reg_t<S>>(
          wide > 0 && static_cast<uint64_t>(wide) > high ? static_cast<int64_t>(high) : wide);
    } else {
      t[l] = static_cast<reg_t<S>>(v > high ? high : v);
    }
  }
  blend(d, t, x.mask);
}
template <typename F, typename S>
struct FromInteger {
  static F run(reg_t<S> a) { return static_cast<F>(static_cast<S>(a)); }
};
struct FloatToDouble {
  static double run(float a) { return a; }
};
struct DoubleToFloat {
  static float run(double a) { return static_cast<float>(a); }
};

struct RoundEven {
  static float run(float a) { return rintf(a); }
  static double run(double a) { return rint(a); }
};
struct RoundZero {
  static float run(float a) { return truncf(a); }
  static double run(double a) { return trunc(a); }
};
struct RoundDown {
  static float run(float a) { return floorf(a); }
  static double run(double a) { return floor(a); }
};
struct RoundUp {
  static float run(float a) { return ceilf(a); }
  static double run(double a) { return ceil(a); }
};

// Toward zero; out of range saturates. Not a number: 0 from f32 to at most 32 bits, else the sign
// bit alone.
template <typename D, typename F>
struct ToInteger {
  static reg_t<D> run(F a) {
    const F r = RoundZero::run(a);
    constexpr bool wide = sizeof(D) == 8 || sizeof(F) == 8;
    using U = std::make_unsigned_t<D>;
    constexpr D nan = wide ? static_cast<D>(static_cast<U>(1) << (sizeof(D) * 8 - 1)) : D{0};
    constexpr D low = std::numeric_limits<D>::min(), high = std::numeric_limits<D>::max();
    // Both bounds are powers of two or 0 as F, hence exact: high + 1 = 2 * (high / 2 + 1).
    constexpr F below = static_cast<F>(low);
    // NOLINTNEXTLINE(bugprone-integer-division)
    constexpr F above = static_cast<F>(high / 2 + 1) * F{2};
    const bool in_range = r >= below && r < above;
    const D value = static_cast<D>(in_range ? r : F{0});
    // NOLINTNEXTLINE(misc-redundant-expression): r may be a NaN
    return static_cast<reg_t<D>>(in_range ? value : r != r ? nan : r < below ? low : high);
  }
};

template <typename F, typename I>
void add_mixed(OpTable& table, const char* f, const char* i) {
  table.add({"cvt.", f, ".", i}, unary<FromInteger<F, I>, F, reg_t<I>>);
  table.add({"cvt.", i, ".", f}, unary<ToInteger<I, F>, reg_t<I>, F>);
}

// Beyond 8 bits the result's signedness does not change its bits.
template <typename I>
void add_type(OpTable& table, const char* i) {
  table.add({"cvt.u8.", i}, unary<Resize<uint8_t, I>, uint16_t, reg_t<I>>);
  table.add({"cvt.s8.", i}, unary<Resize<int8_t, I>, int16_t, reg_t<I>>);
  for (const char* sign : {"u", "s"}) {
    table.add({"cvt.", sign, "16.", i}, unary<Resize<uint16_t, I>, uint16_t, reg_t<I>>);
    table.add({"cvt.", sign, "32.", i}, unary<Resize<uint32_t, I>, uint32_t, reg_t<I>>);
    table.add({"cvt.", sign, "64.", i}, unary<Resize<uint64_t, I>, uint64_t, reg_t<I>>);
  }
  table.add({"clamp.", i}, clamp<I>);
  add_mixed<float, I>(table, "f32", i);
  add_mixed<double, I>(table, "f64", i);
}

template <typename F>
void add_rounding(OpTable& table, const char* f) {
  table.add({"rni.", f}, unary<RoundEven, F, F>);
  table.add({"rzi.", f}, unary<RoundZero, F, F>);
  table.add({"rmi.", f}, unary<RoundDown, F, F>);
  table.add({"rpi.", f}, unary<RoundUp, F, F>);
}

}  // namespace

void add_convert_ops(OpTable& table) {
  add_type<uint8_t>(table, "u8");
  add_type<int8_t>(table, "s8");
  add_type<uint16_t>(table, "u16");
  add_type<int16_t>(table, "s16");
  add_type<uint32_t>(table, "u32");
  add_type<int32_t>(table, "s32");
  add_type<uint64_t>(table, "u64");
  add_type<int64_t>(table, "s64");
  add_rounding<float>(table, "f32");
  add_rounding<double>(table, "f64");
  table.add("cvt.f64.f32", unary<FloatToDouble, double, float>);
  table.add("cvt.f32.f64", unary<DoubleToFloat, float, double>);
}

}  // namespace fargpu::sim::FARGPU_SIM_ISA

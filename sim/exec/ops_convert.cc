// Conversions among integers, f32 and f64. Values of 8 bits live in 16-bit registers, extended by their own sign.
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "sim/exec/lanes.h"
#include "sim/exec/ops.h"

namespace fargpu::sim::FARGPU_SIM_ISA {
namespace {

// The register of a type: itself, but 16 bits for 8.
template <typename T>
using reg_t = std::conditional_t<sizeof(T) == 1, std::conditional_t<std::is_signed_v<T>, int16_t, uint16_t>, T>;

template <typename D, typename S> struct Resize {
  static reg_t<D> run(reg_t<S> a) { return static_cast<reg_t<D>>(static_cast<D>(static_cast<S>(a))); }
};
template <typename D, typename S> struct Clamp {
  static reg_t<D> run(reg_t<S> a) {
    const auto v = static_cast<__int128>(static_cast<S>(a));
    constexpr auto low = static_cast<__int128>(std::numeric_limits<D>::min());
    constexpr auto high = static_cast<__int128>(std::numeric_limits<D>::max());
    return static_cast<reg_t<D>>(static_cast<D>(v < low ? low : v > high ? high : v));
  }
};
template <typename F, typename S> struct FromInteger {
  static F run(reg_t<S> a) { return static_cast<F>(static_cast<S>(a)); }
};
struct FloatToDouble { static double run(float a) { return a; } };
struct DoubleToFloat { static float run(double a) { return static_cast<float>(a); } };

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

// Out of range saturates. Not a number: 0 from f32 to at most 32 bits, else the sign bit alone.
template <typename Round, typename D, typename F> struct ToInteger {
  static reg_t<D> run(F a) {
    const F r = Round::run(a);
    constexpr bool wide = sizeof(D) == 8 || sizeof(F) == 8;
    constexpr D nan = wide ? static_cast<D>(static_cast<std::make_unsigned_t<D>>(1) << (sizeof(D) * 8 - 1)) : D{0};
    constexpr D low = std::numeric_limits<D>::min(), high = std::numeric_limits<D>::max();
    // Both bounds are powers of two or 0 as F, hence exact: high + 1 = 2 * (high / 2 + 1).
    constexpr F below = static_cast<F>(low);
    constexpr F above = static_cast<F>(high / 2 + 1) * F{2};
    const bool in_range = r >= below && r < above;
    const D value = static_cast<D>(in_range ? r : F{0});
    return static_cast<reg_t<D>>(in_range ? value : r != r ? nan : r < below ? low : high);
  }
};

template <typename D, typename S> void add_integers(OpTable& table, const std::string& d, const std::string& s) {
  table.add("cvt." + d + "." + s, unary<Resize<D, S>, reg_t<D>, reg_t<S>>);
  table.add("cvt.sat." + d + "." + s, unary<Clamp<D, S>, reg_t<D>, reg_t<S>>);
}

template <typename F, typename I> void add_mixed(OpTable& table, const std::string& f, const std::string& i) {
  table.add("cvt." + f + "." + i, unary<FromInteger<F, I>, F, reg_t<I>>);
  table.add("cvt.rni." + i + "." + f, unary<ToInteger<RoundEven, I, F>, reg_t<I>, F>);
  table.add("cvt.rzi." + i + "." + f, unary<ToInteger<RoundZero, I, F>, reg_t<I>, F>);
  table.add("cvt.rmi." + i + "." + f, unary<ToInteger<RoundDown, I, F>, reg_t<I>, F>);
  table.add("cvt.rpi." + i + "." + f, unary<ToInteger<RoundUp, I, F>, reg_t<I>, F>);
}

template <typename I> void add_type(OpTable& table, const std::string& i) {
  add_integers<uint8_t, I>(table, "u8", i);
  add_integers<int8_t, I>(table, "s8", i);
  add_integers<uint16_t, I>(table, "u16", i);
  add_integers<int16_t, I>(table, "s16", i);
  add_integers<uint32_t, I>(table, "u32", i);
  add_integers<int32_t, I>(table, "s32", i);
  add_integers<uint64_t, I>(table, "u64", i);
  add_integers<int64_t, I>(table, "s64", i);
  add_mixed<float, I>(table, "f32", i);
  add_mixed<double, I>(table, "f64", i);
}

template <typename F> void add_rounding(OpTable& table, const std::string& f) {
  table.add("rni." + f, unary<RoundEven, F, F>);
  table.add("rzi." + f, unary<RoundZero, F, F>);
  table.add("rmi." + f, unary<RoundDown, F, F>);
  table.add("rpi." + f, unary<RoundUp, F, F>);
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

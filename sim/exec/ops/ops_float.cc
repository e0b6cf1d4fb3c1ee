// f32 and f64 arithmetic. Rounding and denormals come from the handler's FloatScope for the
// operations of the hardware; the others get explicit flush operations from lowering. The
// approximations are computed exactly or by the C library, which is within the error the PTX manual
// allows.
#include <cmath>
#include <type_traits>

#include "sim/exec/ops/lanes.h"
#include "sim/exec/ops/ops.h"

namespace fargpu::sim::FARGPU_SIM_ISA {
namespace {

template <typename T>
using bits_t = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
template <typename T>
inline constexpr bits_t<T> kSign = bits_t<T>{1} << (sizeof(T) * 8 - 1);
template <typename T>
inline constexpr unsigned kFraction = sizeof(T) == 4 ? 23 : 52;
template <typename T>
inline constexpr bits_t<T> kExponent = (~bits_t<T>{0} >> 1) & ~((bits_t<T>{1} << kFraction<T>)-1);

template <typename T>
inline bits_t<T> to_bits(T a) {
  return __builtin_bit_cast(bits_t<T>, a);
}
template <typename T>
inline T from_bits(bits_t<T> a) {
  return __builtin_bit_cast(T, a);
}
template <typename T>
inline bool is_nan(T a) {
  return (to_bits(a) & ~kSign<T>) > kExponent<T>;
}
template <typename T>
inline T canonical_nan() {
  return from_bits<T>(sizeof(T) == 4 ? static_cast<bits_t<T>>(0x7fffffffu)
                                     : static_cast<bits_t<T>>(0x7fffffffffffffffull));
}

struct Add {
  template <typename T>
  static T run(T a, T b) {
    return a + b;
  }
};
struct Subtract {
  template <typename T>
  static T run(T a, T b) {
    return a - b;
  }
};
struct Multiply {
  template <typename T>
  static T run(T a, T b) {
    return a * b;
  }
};
struct Divide {
  template <typename T>
  static T run(T a, T b) {
    return a / b;
  }
};
struct FusedMultiplyAdd {
  static float run(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
  static double run(double a, double b, double c) { return __builtin_fma(a, b, c); }
};
struct SquareRoot {
  static float run(float a) { return __builtin_sqrtf(a); }
  static double run(double a) { return __builtin_sqrt(a); }
};
struct Reciprocal {
  template <typename T>
  static T run(T a) {
    return T{1} / a;
  }
};
struct ReciprocalSquareRoot {
  static float run(float a) {
    return static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(a)));
  }
  static double run(double a) { return 1.0 / __builtin_sqrt(a); }
};
// The f64 approximations use and produce only the upper half of the number.
struct ReciprocalCoarse {
  static double run(double a) {
    const double cut = from_bits<double>(to_bits(a) & 0xffffffff00000000ull);
    return from_bits<double>(to_bits(1.0 / cut) & 0xffffffff00000000ull);
  }
};
struct ReciprocalSquareRootCoarse {
  static double run(double a) {
    const double cut = from_bits<double>(to_bits(a) & 0xffffffff00000000ull);
    return from_bits<double>(to_bits(1.0 / __builtin_sqrt(cut)) & 0xffffffff00000000ull);
  }
};
struct Sine {
  static float run(float a) { return sinf(a); }
};
struct Cosine {
  static float run(float a) { return cosf(a); }
};
struct Exponential {
  static float run(float a) { return exp2f(a); }
};
struct Logarithm {
  static float run(float a) { return log2f(a); }
};
struct HyperbolicTangent {
  static float run(float a) { return tanhf(a); }
};

template <typename T>
struct NegateBits {
  static bits_t<T> run(bits_t<T> a) { return a ^ kSign<T>; }
};
template <typename T>
struct AbsoluteBits {
  static bits_t<T> run(bits_t<T> a) { return a & ~kSign<T>; }
};
template <typename T>
struct FlushBits {  // denormals to zero of the same sign
  static bits_t<T> run(bits_t<T> a) { return (a & kExponent<T>) == 0 ? a & kSign<T> : a; }
};
template <typename T>
struct CopySignBits {  // PTX: the sign of a on the magnitude of b
  static bits_t<T> run(bits_t<T> a, bits_t<T> b) { return (a & kSign<T>) | (b & ~kSign<T>); }
};
// Not a number becomes 0; everything else is brought into [0, 1].
struct Saturate {
  template <typename T>
  static T run(T a) {
    return a > T{0} ? (a < T{1} ? a : T{1}) : T{0};
  }
};
struct SaturateRelu {
  template <typename T>
  static T run(T a) {
    return is_nan(a) ? canonical_nan<T>() : a > T{0} ? a : T{0};
  }
};

template <bool kMax, bool kPropagate>
struct Extreme {
  template <typename T>
  static T run(T a, T b) {
    const bool a_nan = is_nan(a), b_nan = is_nan(b);
    const T picked = (kMax ? a > b : a < b) ? a : b;
    // Equal numbers differ in the sign of zero only: -0 is below +0.
    const bits_t<T> same = kMax ? to_bits(a) & to_bits(b) : to_bits(a) | to_bits(b);
    const T number = a == b ? from_bits<T>(same) : picked;
    if (kPropagate) return a_nan || b_nan ? canonical_nan<T>() : number;
    return a_nan ? (b_nan ? canonical_nan<T>() : b) : b_nan ? a : number;
  }
};
// .xorsign.abs: the extreme of the magnitudes with the product's sign.
template <bool kMax, bool kPropagate>
struct ExtremeXorSign {
  static float run(float a, float b) {
    const uint32_t sign = (to_bits(a) ^ to_bits(b)) & kSign<float>;
    const float m = Extreme<kMax, kPropagate>::run(from_bits<float>(to_bits(a) & ~kSign<float>),
                                                   from_bits<float>(to_bits(b) & ~kSign<float>));
    return from_bits<float>(to_bits(m) | sign);
  }
};

template <typename T, typename Op>
void test_property(Exec& x, const Instr& in) {
  const auto* a = x.at<bits_t<T>>(in.a);
  uint32_t bits = 0;
  for (uint32_t l = 0; l < kLanes; ++l) bits |= (Op::template run<T>(a[l]) ? 1u : 0u) << l;
  x.set_predicate(in.dst, bits);
}
struct IsFinite {
  template <typename T>
  static bool run(bits_t<T> a) {
    return (a & kExponent<T>) != kExponent<T>;
  }
};
struct IsInfinite {
  template <typename T>
  static bool run(bits_t<T> a) {
    return (a & ~kSign<T>) == kExponent<T>;
  }
};
struct IsNumber {
  template <typename T>
  static bool run(bits_t<T> a) {
    return (a & ~kSign<T>) <= kExponent<T>;
  }
};
struct IsNotNumber {
  template <typename T>
  static bool run(bits_t<T> a) {
    return (a & ~kSign<T>) > kExponent<T>;
  }
};
struct IsNormal {
  template <typename T>
  static bool run(bits_t<T> a) {
    return (a & kExponent<T>) != 0 && IsFinite::run<T>(a);
  }
};
struct IsSubnormal {
  template <typename T>
  static bool run(bits_t<T> a) {
    return (a & kExponent<T>) == 0 && (a & ~kSign<T>) != 0;
  }
};

template <typename T>
void add_type(OpTable& table, const char* type) {
  using B = bits_t<T>;
  table.add({"add.", type}, binary<Add, T, T, T>);
  table.add({"sub.", type}, binary<Subtract, T, T, T>);
  table.add({"mul.", type}, binary<Multiply, T, T, T>);
  table.add({"div.", type}, binary<Divide, T, T, T>);
  table.add({"fma.", type}, ternary<FusedMultiplyAdd, T, T, T, T>);
  table.add({"sqrt.", type}, unary<SquareRoot, T, T>);
  table.add({"rcp.", type}, unary<Reciprocal, T, T>);
  table.add({"rsqrt.", type}, unary<ReciprocalSquareRoot, T, T>);
  table.add({"min.", type}, binary<Extreme<false, false>, T, T, T>);
  table.add({"max.", type}, binary<Extreme<true, false>, T, T, T>);
  table.add({"min.nan.", type}, binary<Extreme<false, true>, T, T, T>);
  table.add({"max.nan.", type}, binary<Extreme<true, true>, T, T, T>);
  table.add({"neg.", type}, unary<NegateBits<T>, B, B>);
  table.add({"abs.", type}, unary<AbsoluteBits<T>, B, B>);
  table.add({"flush.", type}, unary<FlushBits<T>, B, B>);
  table.add({"copysign.", type}, binary<CopySignBits<T>, B, B, B>);
  table.add({"sat.", type}, unary<Saturate, T, T>);
  table.add({"relu.", type}, unary<SaturateRelu, T, T>);
  table.add({"testp.finite.", type}, test_property<T, IsFinite>);
  table.add({"testp.infinite.", type}, test_property<T, IsInfinite>);
  table.add({"testp.number.", type}, test_property<T, IsNumber>);
  table.add({"testp.notanumber.", type}, test_property<T, IsNotNumber>);
  table.add({"testp.normal.", type}, test_property<T, IsNormal>);
  table.add({"testp.subnormal.", type}, test_property<T, IsSubnormal>);
}

}  // namespace

void add_float_ops(OpTable& table) {
  add_type<float>(table, "f32");
  add_type<double>(table, "f64");
  table.add("min.xorsign.abs.f32", binary<ExtremeXorSign<false, false>, float, float, float>);
  table.add("max.xorsign.abs.f32", binary<ExtremeXorSign<true, false>, float, float, float>);
  table.add("min.nan.xorsign.abs.f32", binary<ExtremeXorSign<false, true>, float, float, float>);
  table.add("max.nan.xorsign.abs.f32", binary<ExtremeXorSign<true, true>, float, float, float>);
  table.add("rcp.coarse.f64", unary<ReciprocalCoarse, double, double>);
  table.add("rsqrt.coarse.f64", unary<ReciprocalSquareRootCoarse, double, double>);
  table.add("sin.f32", unary<Sine, float, float>);
  table.add("cos.f32", unary<Cosine, float, float>);
  table.add("ex2.f32", unary<Exponential, float, float>);
  table.add("lg2.f32", unary<Logarithm, float, float>);
  table.add("tanh.f32", unary<HyperbolicTangent, float, float>);
}

}  // namespace fargpu::sim::FARGPU_SIM_ISA

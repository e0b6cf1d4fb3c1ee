// f32 and f64 against the host's own arithmetic under the same rounding mode.
#include <cfenv>
#include <cmath>
#include <functional>

#include "tests/ptx/op_fixture.h"

namespace fargpu::sim {
namespace {

class Rounding {
 public:
  explicit Rounding(int mode) { std::fesetround(mode); }
  ~Rounding() { std::fesetround(FE_TONEAREST); }
};

const std::pair<const char*, int> kModes[] = {
    {"rn", FE_TONEAREST}, {"rz", FE_TOWARDZERO}, {"rm", FE_DOWNWARD}, {"rp", FE_UPWARD}};

class FloatTest : public OpTest {
 protected:
  template <typename T>
  void check(const std::string& op, int mode, const std::vector<T>& a, const std::vector<T>& b,
             const std::vector<T>& c, const std::function<T(T, T, T)>& expected) {
    const auto d = apply<T>(op, a, b, c);
    for (size_t i = 0; i < a.size(); ++i) {
      // The host computes under the mode; volatile keeps the compiler from doing it before.
      volatile T x = a[i], y = b[i], z = c[i];
      volatile T e;
      {
        const Rounding rounding(mode);
        e = expected(x, y, z);
      }
      ASSERT_TRUE(same<T>(d[i], e))
          << op << " " << a[i] << " " << b[i] << " " << c[i] << ": " << d[i] << ", expected " << e;
    }
  }

  template <typename T>
  void check_arithmetic(const std::string& type) {
    const auto a = floats<T>(kCount), b = floats<T>(kCount), c = floats<T>(kCount);
    for (const auto& [name, mode] : kModes) {
      const std::string suffix = std::string(".") + name + "." + type;
      check<T>("add" + suffix + " %d, %a, %b;", mode, a, b, c, [](T x, T y, T) { return x + y; });
      check<T>("sub" + suffix + " %d, %a, %b;", mode, a, b, c, [](T x, T y, T) { return x - y; });
      check<T>("mul" + suffix + " %d, %a, %b;", mode, a, b, c, [](T x, T y, T) { return x * y; });
      check<T>("div" + suffix + " %d, %a, %b;", mode, a, b, c, [](T x, T y, T) { return x / y; });
      check<T>("fma" + suffix + " %d, %a, %b, %c;", mode, a, b, c,
               [](T x, T y, T z) { return std::fma(x, y, z); });
      check<T>("sqrt" + suffix + " %d, %a;", mode, a, b, c, [](T x, T, T) { return std::sqrt(x); });
      check<T>("rcp" + suffix + " %d, %a;", mode, a, b, c, [](T x, T, T) { return T{1} / x; });
    }
    const auto plain = [&](const std::string& op, const std::function<T(T, T, T)>& e) {
      check<T>(op, FE_TONEAREST, a, b, c, e);
    };
    plain("add." + type + " %d, %a, %b;", [](T x, T y, T) { return x + y; });
    plain("neg." + type + " %d, %a;", [](T x, T, T) { return -x; });
    plain("abs." + type + " %d, %a;", [](T x, T, T) { return std::fabs(x); });
    const auto low = [](T x, T y, T) {
      return std::isnan(x)   ? y
             : std::isnan(y) ? x
             : x == y        ? (std::signbit(x) ? x : y)
                             : std::min(x, y);
    };
    const auto high = [](T x, T y, T) {
      return std::isnan(x)   ? y
             : std::isnan(y) ? x
             : x == y        ? (std::signbit(x) ? y : x)
                             : std::max(x, y);
    };
    plain("min." + type + " %d, %a, %b;", low);
    plain("max." + type + " %d, %a, %b;", high);
    plain("copysign." + type + " %d, %a, %b;", [](T x, T y, T) { return std::copysign(y, x); });
  }
};

TEST_F(FloatTest, F32) { check_arithmetic<float>("f32"); }
TEST_F(FloatTest, F64) { check_arithmetic<double>("f64"); }

TEST_F(FloatTest, Saturation) {
  const auto a = floats<float>(kCount), b = floats<float>(kCount), c = floats<float>(kCount);
  const auto clamp = [](float v) {
    return std::isnan(v) || v < 0 ? 0.0f : std::min(v, 1.0f) + 0.0f;
  };
  check<float>("add.sat.f32 %d, %a, %b;", FE_TONEAREST, a, b, c,
               [&](float x, float y, float) { return clamp(x + y); });
  check<float>("mul.rz.sat.f32 %d, %a, %b;", FE_TOWARDZERO, a, b, c,
               [&](float x, float y, float) { return clamp(x * y); });
  check<float>("fma.rn.sat.f32 %d, %a, %b, %c;", FE_TONEAREST, a, b, c,
               [&](float x, float y, float z) { return clamp(std::fma(x, y, z)); });
  check<float>("cvt.sat.f32.f32 %d, %a;", FE_TONEAREST, a, b, c,
               [&](float x, float, float) { return clamp(x); });
}

TEST_F(FloatTest, FlushToZero) {
  std::vector<float> a, b;
  for (size_t i = 0; i < kCount; ++i) {  // numbers around the smallest normal one
    a.push_back(std::ldexp(static_cast<float>(static_cast<int>(random() % 4001) - 2000), -136));
    b.push_back(std::ldexp(static_cast<float>(static_cast<int>(random() % 4001) - 2000), -136));
  }
  const auto flush = [](float v) {
    return std::fabs(v) < std::numeric_limits<float>::min() ? std::copysign(0.0f, v) : v;
  };
  const std::vector<float> c = a;
  check<float>("add.ftz.f32 %d, %a, %b;", FE_TONEAREST, a, b, c,
               [&](float x, float y, float) { return flush(flush(x) + flush(y)); });
  check<float>("mul.ftz.f32 %d, %a, %b;", FE_TONEAREST, a, b, c,
               [&](float x, float y, float) { return flush(flush(x) * flush(y)); });
  check<float>("max.ftz.f32 %d, %a, %b;", FE_TONEAREST, a, b, c, [&](float x, float y, float) {
    x = flush(x), y = flush(y);
    return x == y ? (std::signbit(x) ? y : x) : std::max(x, y);
  });
  check<float>("abs.ftz.f32 %d, %a;", FE_TONEAREST, a, b, c,
               [&](float x, float, float) { return std::fabs(flush(x)); });
  check<float>("cvt.ftz.f32.f32 %d, %a;", FE_TONEAREST, a, b, c,
               [&](float x, float, float) { return flush(x); });
  // Without .ftz denormals stay.
  check<float>("add.f32 %d, %a, %b;", FE_TONEAREST, a, b, c,
               [&](float x, float y, float) { return x + y; });
  const auto less = apply<uint32_t>("setp.lt.ftz.f32 %p, %a, %b; selp.u32 %d, 1, 0, %p;", a, b);
  for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(less[i], flush(a[i]) < flush(b[i]) ? 1u : 0u);
}

TEST_F(FloatTest, NanPropagation) {
  const auto a = floats<float>(kCount), b = floats<float>(kCount);
  const auto low = apply<float>("min.NaN.f32 %d, %a, %b;", a, b),
             high = apply<float>("max.NaN.xorsign.abs.f32 %d, %a, %b;", a, b);
  for (size_t i = 0; i < kCount; ++i) {
    if (std::isnan(a[i]) || std::isnan(b[i])) {
      ASSERT_TRUE(std::isnan(low[i]) && std::isnan(high[i]));
    } else {
      ASSERT_EQ(low[i], std::min(a[i], b[i]));
      ASSERT_EQ(std::fabs(high[i]), std::max(std::fabs(a[i]), std::fabs(b[i])));
      ASSERT_EQ(std::signbit(high[i]), std::signbit(a[i]) != std::signbit(b[i]));
    }
  }
}

// Bounds of the PTX manual for the approximations.
TEST_F(FloatTest, Approximations) {
  std::vector<float> a;
  for (size_t i = 0; i < kCount; ++i)
    a.push_back(static_cast<float>(static_cast<double>(random() % 1'000'000) / 100'000.0 + 1e-3));
  const auto check_op = [&](const std::string& op, double (*expected)(double), double relative,
                            double absolute) {
    const auto d = apply<float>(op + " %d, %a;", a);
    for (size_t i = 0; i < a.size(); ++i) {
      const double e = expected(a[i]);
      ASSERT_NEAR(d[i], e, std::fabs(e) * relative + absolute) << op << " " << a[i];
    }
  };
  check_op(
      "sin.approx.f32", [](double v) { return std::sin(v); }, 0, 0x1p-20);
  check_op(
      "cos.approx.f32", [](double v) { return std::cos(v); }, 0, 0x1p-20);
  check_op(
      "ex2.approx.f32", [](double v) { return std::exp2(v); }, 0x1p-22, 0);
  check_op(
      "ex2.approx.ftz.f32", [](double v) { return std::exp2(v); }, 0x1p-22, 0);
  check_op(
      "lg2.approx.f32", [](double v) { return std::log2(v); }, 0x1p-22, 0x1p-22);
  check_op(
      "tanh.approx.f32", [](double v) { return std::tanh(v); }, 0x1p-11, 0);
  check_op(
      "rcp.approx.ftz.f32", [](double v) { return 1 / v; }, 0x1p-23, 0);
  check_op(
      "rsqrt.approx.f32", [](double v) { return 1 / std::sqrt(v); }, 0x1p-22, 0);
  check_op(
      "sqrt.approx.f32", [](double v) { return std::sqrt(v); }, 0x1p-22, 0);
  const auto quotient = apply<float>("div.approx.f32 %d, 1.0, %a;", a),
             full = apply<float>("div.full.f32 %d, 1.0, %a;", a);
  const std::vector<double> wide(a.begin(), a.end());
  const auto rcp = apply<double>("rcp.approx.ftz.f64 %d, %a;", wide),
             rsqrt = apply<double>("rsqrt.approx.f64 %d, %a;", wide);
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_NEAR(quotient[i], 1 / a[i], 1 / a[i] * 0x1p-22);
    ASSERT_NEAR(full[i], 1 / a[i], 1 / a[i] * 0x1p-22);
    ASSERT_NEAR(rcp[i], 1 / wide[i], 1 / wide[i] * 0x1p-19);
    ASSERT_EQ(std::bit_cast<uint64_t>(rcp[i]) & 0xffffffff, 0u);
    ASSERT_NEAR(rsqrt[i], 1 / std::sqrt(wide[i]), 1 / std::sqrt(wide[i]) * 0x1p-40);
  }
}

TEST_F(FloatTest, Classes) {
  const auto a = floats<float>(kCount);
  const auto b = floats<double>(kCount);
  const auto test = [&](const std::string& what, const std::function<bool(double, int)>& expected) {
    const auto f = apply<uint32_t>("testp." + what + ".f32 %p, %a; selp.u32 %d, 1, 0, %p;", a);
    const auto d = apply<uint32_t>("testp." + what + ".f64 %p, %a; selp.u32 %d, 1, 0, %p;", b);
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(f[i], expected(a[i], std::fpclassify(a[i]))) << what << a[i];
      ASSERT_EQ(d[i], expected(b[i], std::fpclassify(b[i]))) << what << b[i];
    }
  };
  test("finite", [](double v, int) { return std::isfinite(v); });
  test("infinite", [](double v, int) { return std::isinf(v); });
  test("number", [](double v, int) { return !std::isnan(v); });
  test("notanumber", [](double v, int) { return std::isnan(v); });
  test("normal", [](double, int c) { return c == FP_NORMAL; });
  test("subnormal", [](double, int c) { return c == FP_SUBNORMAL; });
}

TEST_F(FloatTest, PairsOfFloats) {
  const auto a = floats<float>(2 * kCount), b = floats<float>(2 * kCount);
  std::vector<uint64_t> pa(kCount), pb(kCount);
  std::memcpy(pa.data(), a.data(), kCount * 8);
  std::memcpy(pb.data(), b.data(), kCount * 8);
  const auto sum = apply<uint64_t>("add.rn.f32x2 %d, %a, %b;", pa, pb),
             fused = apply<uint64_t>("fma.rn.f32x2 %d, %a, %b, %a;", pa, pb);
  std::vector<float> s(2 * kCount), f(2 * kCount);
  std::memcpy(s.data(), sum.data(), kCount * 8);
  std::memcpy(f.data(), fused.data(), kCount * 8);
  for (size_t i = 0; i < 2 * kCount; ++i) {
    ASSERT_TRUE(same(s[i], a[i] + b[i]));
    ASSERT_TRUE(same(f[i], std::fma(a[i], b[i], a[i])));
  }
}

}  // namespace
}  // namespace fargpu::sim

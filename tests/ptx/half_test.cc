// f16 and bf16 against exact references: every result is the nearest number of the format to the
// exact one, found by search.
#include <cmath>

#include "tests/ptx/op_fixture.h"

namespace fargpu::sim {
namespace {

struct F16Format {
  static constexpr const char* kName = "f16";
  static constexpr int kFraction = 10, kBias = 15;
};
struct Bf16Format {
  static constexpr const char* kName = "bf16";
  static constexpr int kFraction = 7, kBias = 127;
};

// The value of a code, by the definition of binary formats.
template <typename F>
double value_of(uint16_t code) {
  constexpr int kMaxField = (1 << (15 - F::kFraction)) - 1;
  const int field = code >> F::kFraction & kMaxField;
  const int fraction = code & ((1 << F::kFraction) - 1);
  double v = 0;
  if (field == kMaxField)
    v = fraction == 0 ? HUGE_VAL : NAN;
  else if (field == 0)
    v = std::ldexp(fraction, 1 - F::kBias - F::kFraction);
  else
    v = std::ldexp(fraction + (1 << F::kFraction), field - F::kBias - F::kFraction);
  return (code & 0x8000) != 0 ? -v : v;
}

// The code nearest to an exact value (long double holds all sums and products here), ties to even.
// Codes of positive numbers are ordered.
template <typename F>
uint16_t nearest(long double v) {
  if (v != v) return 0x7fff;
  const uint16_t sign = std::signbit(v) ? 0x8000 : 0;
  const long double m = std::fabs(v);
  constexpr int kMaxField = (1 << (15 - F::kFraction)) - 1;
  constexpr uint16_t kInfinity = kMaxField << F::kFraction;
  uint16_t low = 0, high = kInfinity;  // the last code whose value is at most m
  while (low < high) {
    const auto middle = static_cast<uint16_t>((low + high + 1) / 2);
    if (static_cast<long double>(value_of<F>(middle)) <= m)
      low = middle;
    else
      high = static_cast<uint16_t>(middle - 1);
  }
  if (low == kInfinity) return sign | kInfinity;
  // Beyond the largest number the next step counts as if the exponent went on.
  const long double below = value_of<F>(low);
  const long double above =
      low + 1 == kInfinity ? std::ldexp(1.0L, F::kBias + 1)
                           : static_cast<long double>(value_of<F>(static_cast<uint16_t>(low + 1)));
  const long double to_low = m - below, to_high = above - m;
  if (to_high < to_low || (to_high == to_low && (low & 1) != 0)) ++low;
  return sign | low;
}

template <typename F>
bool same_half(uint16_t a, uint16_t b) {
  if (std::isnan(value_of<F>(a)) && std::isnan(value_of<F>(b))) return true;
  return a == b;
}

class HalfTest : public OpTest {
 protected:
  std::vector<uint16_t> halves(size_t count) {
    std::vector<uint16_t> values = below<uint16_t>(count, 65536);
    const uint16_t corners[] = {0,      0x8000, 1,      0x3c00, 0x7bff, 0x7c00,
                                0xfc00, 0x7e00, 0x3f80, 0x7f80, 0x0400};
    for (size_t i = 0; i < count; i += 5) values[i] = corners[random() % std::size(corners)];
    // Neighbours in size, so that sums and fused products round.
    for (size_t i = 1; i < count; i += 5)
      values[i] = static_cast<uint16_t>(0x3c00 + random() % 2048);
    return values;
  }

  template <typename F>
  void check_format() {
    const std::string type = F::kName;
    const auto a = halves(kCount), b = halves(kCount), c = halves(kCount);
    const auto v = [](uint16_t code) { return static_cast<long double>(value_of<F>(code)); };
    const auto add = apply<uint16_t>("add." + type + " %d, %a, %b;", a, b),
               sub = apply<uint16_t>("sub.rn." + type + " %d, %a, %b;", a, b);
    const auto mul = apply<uint16_t>("mul." + type + " %d, %a, %b;", a, b),
               fma = apply<uint16_t>("fma.rn." + type + " %d, %a, %b, %c;", a, b, c);
    const auto neg = apply<uint16_t>("neg." + type + " %d, %a;", a),
               low = apply<uint16_t>("min." + type + " %d, %a, %b;", a, b);
    const auto wide = apply<float>("cvt.f32." + type + " %d, %a;", a);
    for (size_t i = 0; i < kCount; ++i) {
      const auto where = [&] {
        return ::testing::Message() << type << " " << v(a[i]) << " " << v(b[i]) << " " << v(c[i]);
      };
      ASSERT_TRUE(same_half<F>(add[i], nearest<F>(v(a[i]) + v(b[i])))) << where();
      ASSERT_TRUE(same_half<F>(sub[i], nearest<F>(v(a[i]) - v(b[i])))) << where();
      ASSERT_TRUE(same_half<F>(mul[i], nearest<F>(v(a[i]) * v(b[i])))) << where();
      // Sums of a product and a third number need more bits than long double has when they are far
      // apart; then the smaller one only decides ties.
      const long double p = v(a[i]) * v(b[i]), z = v(c[i]);
      long double s = p + z;
      const long double error = std::fabs(p) > std::fabs(z) ? z - (s - p) : p - (s - z);
      if (std::isfinite(s) && error != 0) s = std::nextafter(s, error > 0 ? HUGE_VALL : -HUGE_VALL);
      ASSERT_TRUE(same_half<F>(fma[i], nearest<F>(s))) << where() << " fma " << v(fma[i]);
      ASSERT_EQ(neg[i], a[i] ^ 0x8000);
      ASSERT_TRUE(same(wide[i], static_cast<float>(v(a[i]))));
      if (!std::isnan(v(a[i])) && !std::isnan(v(b[i])) && v(a[i]) != v(b[i])) {
        ASSERT_EQ(low[i], v(a[i]) < v(b[i]) ? a[i] : b[i]);
      }
    }
    const auto f = floats<float>(kCount);
    const auto d = floats<double>(kCount);
    const auto from_float = apply<uint16_t>("cvt.rn." + type + ".f32 %d, %a;", f),
               from_double = apply<uint16_t>("cvt.rn." + type + ".f64 %d, %a;", d);
    const auto to_zero = apply<uint16_t>("cvt.rz." + type + ".f32 %d, %a;", f);
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_TRUE(same_half<F>(from_float[i], nearest<F>(f[i]))) << f[i];
      ASSERT_TRUE(same_half<F>(from_double[i], nearest<F>(d[i]))) << d[i];
      const double z = value_of<F>(to_zero[i]);
      if (std::isfinite(f[i])) {
        ASSERT_LE(std::fabs(z), std::fabs(f[i]));
        ASSERT_TRUE(static_cast<double>(std::fabs(f[i])) <
                        std::fabs(value_of<F>(static_cast<uint16_t>(to_zero[i] + 1))) ||
                    std::isinf(value_of<F>(static_cast<uint16_t>(to_zero[i] + 1))));
      }
    }
  }
};

TEST_F(HalfTest, F16) { check_format<F16Format>(); }
TEST_F(HalfTest, Bf16) { check_format<Bf16Format>(); }

TEST_F(HalfTest, PackedIsTwice) {
  const auto a = integers<uint32_t>(kCount), b = integers<uint32_t>(kCount),
             c = integers<uint32_t>(kCount);
  std::vector<uint16_t> al, ah, bl, bh, cl, ch;
  for (size_t i = 0; i < kCount; ++i) {
    al.push_back(static_cast<uint16_t>(a[i])), ah.push_back(static_cast<uint16_t>(a[i] >> 16));
    bl.push_back(static_cast<uint16_t>(b[i])), bh.push_back(static_cast<uint16_t>(b[i] >> 16));
    cl.push_back(static_cast<uint16_t>(c[i])), ch.push_back(static_cast<uint16_t>(c[i] >> 16));
  }
  for (const char* op : {"add.f16", "sub.f16", "mul.bf16", "fma.rn.f16", "fma.rn.relu.bf16",
                         "max.f16", "min.NaN.bf16", "fma.rn.sat.f16"}) {
    const bool three = std::string(op).starts_with("fma");
    const std::string args = three ? " %d, %a, %b, %c;" : " %d, %a, %b;";
    const auto both = apply<uint32_t>(std::string(op) + "x2" + args, a, b, c);
    const auto low = apply<uint16_t>(op + args, al, bl, cl),
               high = apply<uint16_t>(op + args, ah, bh, ch);
    for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(both[i], uint32_t{high[i]} << 16 | low[i]) << op;
  }
}

TEST_F(HalfTest, SaturationAndRelu) {
  const auto a = halves(kCount), b = halves(kCount);
  const auto sat = apply<uint16_t>("add.sat.f16 %d, %a, %b;", a, b);
  const auto relu = apply<uint16_t>("fma.rn.relu.f16 %d, %a, %b, %a;", a, b);
  for (size_t i = 0; i < kCount; ++i) {
    const double s = value_of<F16Format>(sat[i]);
    ASSERT_TRUE(s >= 0 && s <= 1);
    const double r = value_of<F16Format>(relu[i]);
    ASSERT_TRUE(std::isnan(r) || r >= 0);
  }
}

TEST_F(HalfTest, CompareAndConvert) {
  const auto a = halves(kCount), b = halves(kCount);
  const auto less = apply<uint32_t>("setp.lt.f16 %p, %a, %b; selp.u32 %d, 1, 0, %p;", a, b);
  const auto whole = apply<int32_t>("cvt.rzi.s32.f16 %d, %a;", a);
  const auto even = apply<uint16_t>("cvt.rni.f16.f16 %d, %a;", a);
  for (size_t i = 0; i < kCount; ++i) {
    const double x = value_of<F16Format>(a[i]), y = value_of<F16Format>(b[i]);
    ASSERT_EQ(less[i], x < y ? 1u : 0u);
    const int32_t e = std::isnan(x)   ? 0
                      : std::isinf(x) ? (x > 0 ? INT32_MAX : INT32_MIN)
                                      : static_cast<int32_t>(x);
    ASSERT_EQ(whole[i], e) << x;
    ASSERT_TRUE(same_half<F16Format>(even[i], nearest<F16Format>(std::nearbyint(x)))) << x;
  }
  const auto n = integers<int32_t>(kCount);
  const auto wide = integers<uint64_t>(kCount);
  const auto from_int = apply<uint16_t>("cvt.rn.f16.s32 %d, %a;", n),
             bf_from_u64 = apply<uint16_t>("cvt.rn.bf16.u64 %d, %a;", wide);
  for (size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(from_int[i], nearest<F16Format>(n[i])) << n[i];
    ASSERT_EQ(bf_from_u64[i], nearest<Bf16Format>(static_cast<long double>(wide[i]))) << wide[i];
  }
}

TEST_F(HalfTest, PackedComparisons) {
  const auto a = integers<uint32_t>(kCount), b = integers<uint32_t>(kCount);
  const auto both = apply<uint32_t>(
      "setp.lt.f16x2 %p|%q, %a, %b; selp.u32 %d, 1, 0, %p; selp.u32 %t1, 2, 0, %q; or.b32 %d, %d, "
      "%t1;",
      a, b);
  const auto ones = apply<uint32_t>("set.geu.f16x2.f16x2 %d, %a, %b;", a, b);
  const auto mask = apply<uint32_t>("set.eq.u32.bf16x2 %d, %a, %a;", a);
  for (size_t i = 0; i < kCount; ++i) {
    uint32_t e = 0, o = 0, m = 0;
    for (unsigned k = 0; k < 2; ++k) {
      const double x = value_of<F16Format>(static_cast<uint16_t>(a[i] >> 16 * k));
      const double y = value_of<F16Format>(static_cast<uint16_t>(b[i] >> 16 * k));
      e |= x < y ? 1u << k : 0u;
      o |= !(x < y) ? 0x3c00u << 16 * k : 0u;
      const double z = value_of<Bf16Format>(static_cast<uint16_t>(a[i] >> 16 * k));
      m |= z == z ? 0xffffu << 16 * k : 0u;
    }
    ASSERT_EQ(both[i], e);
    ASSERT_EQ(ones[i], o);
    ASSERT_EQ(mask[i], m);
  }
}

TEST_F(HalfTest, PackedConversions) {
  const auto a = floats<float>(kCount), b = floats<float>(kCount);
  const auto f = apply<uint32_t>("cvt.rn.f16x2.f32 %d, %a, %b;", a, b),
             g = apply<uint32_t>("cvt.rn.bf16x2.f32 %d, %a, %b;", a, b);
  const auto t = apply<float>("cvt.rna.tf32.f32 %d, %a;", a);
  for (size_t i = 0; i < kCount; ++i) {
    ASSERT_TRUE(same_half<F16Format>(static_cast<uint16_t>(f[i] >> 16), nearest<F16Format>(a[i])));
    ASSERT_TRUE(same_half<F16Format>(static_cast<uint16_t>(f[i]), nearest<F16Format>(b[i])));
    ASSERT_TRUE(
        same_half<Bf16Format>(static_cast<uint16_t>(g[i] >> 16), nearest<Bf16Format>(a[i])));
    if (std::isnormal(a[i]) && std::fabs(a[i]) < 1e38f) {
      ASSERT_LE(std::fabs(t[i] - a[i]), std::fabs(a[i]) * 0x1p-11f);
      ASSERT_EQ(std::bit_cast<uint32_t>(t[i]) & 0x1fff, 0u);
    }
  }
}

// Every 8-bit float goes to f16 and back unchanged; conversion picks the nearest.
TEST_F(HalfTest, EightBitFloats) {
  for (const std::string type : {"e4m3x2", "e5m2x2"}) {
    std::vector<uint16_t> codes;
    for (uint32_t i = 0; i < 256; ++i) codes.push_back(static_cast<uint16_t>(i | (255 - i) << 8));
    const auto wide = apply<uint32_t>("cvt.rn.f16x2." + type + " %d, %a;", codes);
    const auto back = apply<uint16_t>("cvt.rn.satfinite." + type + ".f16x2 %d, %a;", wide);
    const int fraction = type == "e4m3x2" ? 3 : 2, bias = type == "e4m3x2" ? 7 : 15;
    for (uint32_t i = 0; i < 256; ++i) {
      const uint32_t magnitude = i & 0x7f;
      const bool special = type == "e4m3x2" ? magnitude == 0x7f : magnitude >= 0x7c;
      if (special) continue;
      const int exponent = static_cast<int>(magnitude >> fraction);
      const double m = magnitude & ((1u << fraction) - 1);
      double e = exponent == 0 ? std::ldexp(m, 1 - bias - fraction)
                               : std::ldexp(m + (1 << fraction), exponent - bias - fraction);
      if ((i & 0x80) != 0) e = -e;
      ASSERT_EQ(value_of<F16Format>(static_cast<uint16_t>(wide[i])), e) << type << i;
      ASSERT_EQ(back[i] & 0xff, i) << type;
    }
  }
  const auto big =
      apply<uint16_t>("cvt.rn.satfinite.e4m3x2.f32 %d, %a, %b;",
                      std::vector<float>{1000, 260, 0.3f}, std::vector<float>{-1000, 447, -1e-9f});
  EXPECT_EQ(big[0], 0x7efe);         // +-448
  EXPECT_EQ(big[1], 0x787e);         // 256, 448
  EXPECT_EQ(big[2] & 0x80ff, 0x80);  // -0
}

}  // namespace
}  // namespace fargpu::sim

// cvt: the matrix of integers, f32 and f64 with all roundings, saturation and registers wider than
// their types.
#include <cfenv>
#include <cmath>

#include "tests/ptx/op_fixture.h"

namespace fargpu::sim {
namespace {

class ConvertTest : public OpTest {
 protected:
  template <typename F>
  static F rounded(F v, char mode) {
    switch (mode) {
      case 'n':
        return std::nearbyint(v);
      case 'z':
        return std::trunc(v);
      case 'm':
        return std::floor(v);
      default:
        return std::ceil(v);
    }
  }
  // What the PTX manual says about values that do not fit.
  template <typename I, typename F>
  static I to_integer(F v, char mode) {
    const F r = rounded(v, mode);
    if (std::isnan(r))
      return sizeof(I) == 8 || sizeof(F) == 8
                 ? static_cast<I>(std::make_unsigned_t<I>{1} << (sizeof(I) * 8 - 1))
                 : I{0};
    const long double wide = r;
    if (wide < static_cast<long double>(std::numeric_limits<I>::min()))
      return std::numeric_limits<I>::min();
    if (wide > static_cast<long double>(std::numeric_limits<I>::max()))
      return std::numeric_limits<I>::max();
    return static_cast<I>(r);
  }
  template <typename I, typename F>
  void check_pair(const std::string& i_type, const std::string& f_type) {
    auto f = floats<F>(kCount);
    for (size_t i = 0; i < kCount; i += 2)
      f[i] = static_cast<F>(static_cast<double>(static_cast<int64_t>(random() >> (random() % 60))) *
                            0.25);
    for (const char mode : {'n', 'z', 'm', 'p'}) {
      const auto d =
          apply<I>(std::string("cvt.r") + mode + "i." + i_type + "." + f_type + " %d, %a;", f);
      for (size_t i = 0; i < kCount; ++i)
        ASSERT_EQ(d[i], (to_integer<I, F>(f[i], mode))) << i_type << f_type << mode << f[i];
    }
    const auto n = integers<I>(kCount);
    const std::pair<const char*, int> modes[] = {
        {"rn", FE_TONEAREST}, {"rz", FE_TOWARDZERO}, {"rm", FE_DOWNWARD}, {"rp", FE_UPWARD}};
    for (const auto& [name, mode] : modes) {
      const auto d =
          apply<F>(std::string("cvt.") + name + "." + f_type + "." + i_type + " %d, %a;", n);
      for (size_t i = 0; i < kCount; ++i) {
        std::fesetround(mode);
        volatile I source = n[i];
        volatile F e = static_cast<F>(source);
        std::fesetround(FE_TONEAREST);
        ASSERT_EQ(d[i], e) << name << f_type << i_type << " " << +n[i];
      }
    }
  }
  template <typename D, typename S>
  void check_integers(const std::string& d_type, const std::string& s_type) {
    const auto a = integers<S>(kCount);
    const auto plain = apply<D>("cvt." + d_type + "." + s_type + " %d, %a;", a),
               clamped = apply<D>("cvt.sat." + d_type + "." + s_type + " %d, %a;", a);
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(plain[i], static_cast<D>(a[i])) << d_type << s_type;
      const __int128 v = a[i], low = std::numeric_limits<D>::min(),
                     high = std::numeric_limits<D>::max();
      ASSERT_EQ(clamped[i], static_cast<D>(v < low    ? low
                                           : v > high ? high
                                                      : v))
          << d_type << s_type << +a[i];
    }
  }
  template <typename S>
  void check_from(const std::string& s_type) {
    check_integers<uint16_t, S>("u16", s_type);
    check_integers<int16_t, S>("s16", s_type);
    check_integers<uint32_t, S>("u32", s_type);
    check_integers<int32_t, S>("s32", s_type);
    check_integers<uint64_t, S>("u64", s_type);
    check_integers<int64_t, S>("s64", s_type);
  }
};

TEST_F(ConvertTest, Integers) {
  check_from<uint16_t>("u16");
  check_from<int16_t>("s16");
  check_from<uint32_t>("u32");
  check_from<int32_t>("s32");
  check_from<uint64_t>("u64");
  check_from<int64_t>("s64");
}

TEST_F(ConvertTest, FloatsAndIntegers) {
  check_pair<uint16_t, float>("u16", "f32");
  check_pair<int16_t, float>("s16", "f32");
  check_pair<uint32_t, float>("u32", "f32");
  check_pair<int32_t, float>("s32", "f32");
  check_pair<uint64_t, float>("u64", "f32");
  check_pair<int64_t, float>("s64", "f32");
}

TEST_F(ConvertTest, DoublesAndIntegers) {
  check_pair<uint16_t, double>("u16", "f64");
  check_pair<int16_t, double>("s16", "f64");
  check_pair<uint32_t, double>("u32", "f64");
  check_pair<int32_t, double>("s32", "f64");
  check_pair<uint64_t, double>("u64", "f64");
  check_pair<int64_t, double>("s64", "f64");
}

TEST_F(ConvertTest, BetweenFloats) {
  const auto d = floats<double>(kCount);
  const auto f = floats<float>(kCount);
  const std::pair<const char*, int> modes[] = {
      {"rn", FE_TONEAREST}, {"rz", FE_TOWARDZERO}, {"rm", FE_DOWNWARD}, {"rp", FE_UPWARD}};
  for (const auto& [name, mode] : modes) {
    const auto r = apply<float>(std::string("cvt.") + name + ".f32.f64 %d, %a;", d);
    for (size_t i = 0; i < kCount; ++i) {
      std::fesetround(mode);
      volatile double source = d[i];
      volatile float e = static_cast<float>(source);
      std::fesetround(FE_TONEAREST);
      ASSERT_TRUE(same<float>(r[i], e)) << name << d[i];
    }
  }
  const auto wide = apply<double>("cvt.f64.f32 %d, %a;", f);
  for (size_t i = 0; i < kCount; ++i) ASSERT_TRUE(same(wide[i], static_cast<double>(f[i])));
  for (const char mode : {'n', 'z', 'm', 'p'}) {
    const auto a = apply<float>(std::string("cvt.r") + mode + "i.f32.f32 %d, %a;", f);
    const auto b = apply<double>(std::string("cvt.r") + mode + "i.f64.f64 %d, %a;", d);
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_TRUE(same(a[i], rounded(f[i], mode)));
      ASSERT_TRUE(same(b[i], rounded(d[i], mode)));
    }
  }
}

TEST_F(ConvertTest, BytesAndWiderRegisters) {
  const auto a = integers<uint32_t>(kCount);
  const auto u8 = apply<uint32_t>("cvt.u8.u32 %d, %a;", a);
  const auto s8 = apply<int32_t>("cvt.s8.u32 %d, %a;", a);
  const auto from8 = apply<int32_t>("cvt.s32.s8 %d, %a;", a);
  const auto from16 = apply<int64_t>("cvt.s64.s16 %d, %a;", a);
  const auto sat8 = apply<uint16_t>("cvt.sat.s8.s32 %d, %a;", a);
  const auto f = apply<float>("cvt.rn.f32.u8 %d, %a;", a);
  const auto narrow = apply<uint64_t>("cvt.u16.u32 %d, %a;", a);
  for (size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(u8[i], a[i] & 0xff);
    ASSERT_EQ(s8[i], static_cast<int8_t>(a[i]));
    ASSERT_EQ(from8[i], static_cast<int8_t>(a[i]));
    ASSERT_EQ(from16[i], static_cast<int16_t>(a[i]));
    ASSERT_EQ(static_cast<int16_t>(sat8[i]), std::clamp(static_cast<int32_t>(a[i]), -128, 127));
    ASSERT_EQ(f[i], static_cast<float>(a[i] & 0xff));
    ASSERT_EQ(narrow[i], a[i] & 0xffff);
  }
  const auto r = floats<float>(kCount);
  const auto byte = apply<uint32_t>("cvt.rzi.u8.f32 %d, %a;", r);
  for (size_t i = 0; i < kCount; ++i)
    ASSERT_EQ(byte[i], (to_integer<uint8_t, float>(r[i], 'z'))) << r[i];
}

TEST_F(ConvertTest, Packs) {
  const auto a = integers<int32_t>(kCount), b = integers<int32_t>(kCount);
  const auto c = integers<uint32_t>(kCount);
  const auto words = apply<uint32_t>("cvt.pack.sat.s16.s32 %d, %a, %b;", a, b);
  const auto bytes = apply<uint32_t>("cvt.pack.sat.u8.s32.b32 %d, %a, %b, %c;", a, b, c);
  for (size_t i = 0; i < kCount; ++i) {
    const auto w = [](int32_t v) {
      return static_cast<uint32_t>(std::clamp(v, -32768, 32767)) & 0xffff;
    };
    const auto y = [](int32_t v) { return static_cast<uint32_t>(std::clamp(v, 0, 255)); };
    ASSERT_EQ(words[i], w(a[i]) << 16 | w(b[i]));
    ASSERT_EQ(bytes[i], c[i] << 16 | y(a[i]) << 8 | y(b[i]));
  }
}

}  // namespace
}  // namespace fargpu::sim

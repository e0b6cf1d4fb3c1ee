// setp, set, selp, slct against the host.
#include <cmath>
#include <functional>

#include "tests/ptx/op_fixture.h"

namespace fargpu::sim {
namespace {

class CompareTest : public OpTest {
 protected:
  template <typename T>
  void check(const std::string& name, const std::vector<T>& a, const std::vector<T>& b,
             const std::function<bool(T, T)>& expected) {
    const auto d = apply<uint32_t>("setp." + name + " %p, %a, %b; selp.u32 %d, 1, 0, %p;", a, b);
    for (size_t i = 0; i < a.size(); ++i)
      ASSERT_EQ(d[i] != 0, expected(a[i], b[i])) << name << " " << +a[i] << " " << +b[i];
  }
  template <typename T>
  void check_integers(const std::string& type) {
    auto a = integers<T>(kCount), b = integers<T>(kCount);
    for (size_t i = 0; i < kCount; i += 3) b[i] = a[i];
    check<T>("eq." + type, a, b, [](T x, T y) { return x == y; });
    check<T>("ne." + type, a, b, [](T x, T y) { return x != y; });
    check<T>("lt." + type, a, b, [](T x, T y) { return x < y; });
    check<T>("le." + type, a, b, [](T x, T y) { return x <= y; });
    check<T>("gt." + type, a, b, [](T x, T y) { return x > y; });
    check<T>("ge." + type, a, b, [](T x, T y) { return x >= y; });
    if constexpr (std::is_unsigned_v<T>) {
      check<T>("lo." + type, a, b, [](T x, T y) { return x < y; });
      check<T>("ls." + type, a, b, [](T x, T y) { return x <= y; });
      check<T>("hi." + type, a, b, [](T x, T y) { return x > y; });
      check<T>("hs." + type, a, b, [](T x, T y) { return x >= y; });
    }
  }
  template <typename T>
  void check_floats(const std::string& type) {
    auto a = floats<T>(kCount), b = floats<T>(kCount);
    for (size_t i = 0; i < kCount; i += 3) b[i] = a[i];
    const auto nan = [](T x, T y) { return std::isnan(x) || std::isnan(y); };
    check<T>("eq." + type, a, b, [](T x, T y) { return x == y; });
    check<T>("ne." + type, a, b, [&](T x, T y) { return !nan(x, y) && x != y; });
    check<T>("lt." + type, a, b, [](T x, T y) { return x < y; });
    check<T>("le." + type, a, b, [](T x, T y) { return x <= y; });
    check<T>("gt." + type, a, b, [](T x, T y) { return x > y; });
    check<T>("ge." + type, a, b, [](T x, T y) { return x >= y; });
    check<T>("equ." + type, a, b, [&](T x, T y) { return nan(x, y) || x == y; });
    check<T>("neu." + type, a, b, [](T x, T y) { return x != y; });
    check<T>("ltu." + type, a, b, [](T x, T y) { return !(x >= y); });
    check<T>("leu." + type, a, b, [](T x, T y) { return !(x > y); });
    check<T>("gtu." + type, a, b, [](T x, T y) { return !(x <= y); });
    check<T>("geu." + type, a, b, [](T x, T y) { return !(x < y); });
    check<T>("num." + type, a, b, [&](T x, T y) { return !nan(x, y); });
    check<T>("nan." + type, a, b, nan);
  }
};

TEST_F(CompareTest, Integers) {
  check_integers<uint16_t>("u16");
  check_integers<int16_t>("s16");
  check_integers<uint32_t>("u32");
  check_integers<int32_t>("s32");
  check_integers<uint64_t>("u64");
  check_integers<int64_t>("s64");
}
TEST_F(CompareTest, F32) { check_floats<float>("f32"); }
TEST_F(CompareTest, F64) { check_floats<double>("f64"); }

TEST_F(CompareTest, CombinationAndSecondPredicate) {
  const auto a = integers<int32_t>(kCount), b = integers<int32_t>(kCount);
  const std::pair<const char*, std::function<bool(bool, bool)>> kinds[] = {
      {"and", [](bool x, bool y) { return x && y; }},
      {"or", [](bool x, bool y) { return x || y; }},
      {"xor", [](bool x, bool y) { return x != y; }}};
  for (const auto& [name, combine] : kinds) {
    for (const bool negated : {false, true}) {
      const auto d = apply<uint32_t>(
          std::string("setp.gt.s32 %out, %b, 0; setp.lt.") + name + ".s32 %p|%q, %a, %b, " +
              (negated ? "!" : "") +
              "%out; selp.u32 %d, 1, 0, %p; selp.u32 %t1, 2, 0, %q; or.b32 %d, %d, %t1;",
          a, b);
      for (size_t i = 0; i < kCount; ++i) {
        const bool c = (b[i] > 0) != negated;
        ASSERT_EQ(d[i],
                  (combine(a[i] < b[i], c) ? 1u : 0u) | (combine(!(a[i] < b[i]), c) ? 2u : 0u))
            << name;
      }
    }
  }
}

TEST_F(CompareTest, SetAndSelect) {
  const auto a = floats<float>(kCount), b = floats<float>(kCount);
  const auto f = apply<float>("set.lt.f32.f32 %d, %a, %b;", a, b);
  const auto u = apply<uint32_t>("set.geu.u32.f32 %d, %a, %b;", a, b);
  const auto s =
      apply<int32_t>("setp.gt.f32 %p, %a, 0f00000000; set.lt.and.s32.f32 %d, %a, %b, !%p;", a, b);
  const auto by_float = apply<float>("slct.f32.f32 %d, %a, %b, %b;", a, b);
  const auto by_integer = apply<float>("slct.f32.s32 %d, %a, %b, %b;", a, b);
  for (size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(f[i], a[i] < b[i] ? 1.0f : 0.0f);
    ASSERT_EQ(u[i], !(a[i] < b[i]) ? ~0u : 0u);
    ASSERT_EQ(s[i], a[i] < b[i] && !(a[i] > 0) ? -1 : 0);
    ASSERT_TRUE(same(by_float[i], b[i] >= 0 ? a[i] : b[i]));
    ASSERT_TRUE(same(by_integer[i], std::bit_cast<int32_t>(b[i]) >= 0 ? a[i] : b[i]));
  }
  const auto wide = integers<uint64_t>(kCount);
  const auto d =
      apply<uint64_t>("and.b64 %u1, %a, 1; setp.eq.u64 %p, %u1, 0; selp.b64 %d, %a, 7, !%p;", wide);
  for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(d[i], (wide[i] & 1) != 0 ? wide[i] : 7);
}

TEST_F(CompareTest, PredicateLogic) {
  const auto a = integers<uint32_t>(kCount), b = integers<uint32_t>(kCount);
  const auto d = apply<uint32_t>(
      "setp.gt.u32 %p, %a, 100; setp.lt.u32 %q, %b, 1000; mov.u32 %d, 0;\n"
      "{.reg .pred %x0; and.pred %x0, %p, %q; @%x0 or.b32 %d, %d, 1; or.pred %x0, %p, !%q; @%x0 "
      "or.b32 %d, %d, 2;\n"
      "xor.pred %x0, %p, %q; @%x0 or.b32 %d, %d, 4; not.pred %x0, %p; @!%x0 or.b32 %d, %d, 8; "
      "mov.pred %x0, 1; @%x0 or.b32 %d, %d, 16;}",
      a, b);
  for (size_t i = 0; i < kCount; ++i) {
    const bool p = a[i] > 100, q = b[i] < 1000;
    ASSERT_EQ(d[i],
              (p && q ? 1u : 0u) | (p || !q ? 2u : 0u) | (p != q ? 4u : 0u) | (p ? 8u : 0u) | 16u);
  }
}

}  // namespace
}  // namespace fargpu::sim

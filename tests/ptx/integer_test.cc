// Integer arithmetic against the host.
#include <functional>

#include "tests/ptx/op_fixture.h"

namespace fargpu::sim {
namespace {

class IntegerTest : public OpTest {
 protected:
  template <typename T, typename D = T>
  void check2(const std::string& op, const std::type_identity_t<std::function<D(T, T)>>& expected) {
    const auto a = integers<T>(kCount), b = integers<T>(kCount);
    const auto d = apply<D>(op + " %d, %a, %b;", a, b);
    for (size_t i = 0; i < kCount; ++i)
      ASSERT_EQ(d[i], expected(a[i], b[i])) << op << " " << +a[i] << " " << +b[i];
  }
  template <typename T, typename D = T>
  void check3(const std::string& op,
              const std::type_identity_t<std::function<D(T, T, D)>>& expected) {
    const auto a = integers<T>(kCount), b = integers<T>(kCount);
    const auto c = integers<D>(kCount);
    const auto d = apply<D>(op + " %d, %a, %b, %c;", a, b, c);
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(d[i], expected(a[i], b[i], c[i]))
          << op << " " << +a[i] << " " << +b[i] << " " << +c[i];
    }
  }

  template <typename T>
  void check_type(const std::string& type) {
    using W = __int128;
    using U = std::make_unsigned_t<T>;
    constexpr unsigned bits = sizeof(T) * 8;
    const auto wrap = [](W v) { return static_cast<T>(static_cast<U>(v)); };
    check2<T>("add." + type, [&](T a, T b) { return wrap(W{a} + b); });
    check2<T>("sub." + type, [&](T a, T b) { return wrap(W{a} - b); });
    // Products of 64-bit numbers of either sign fit into 128 bits as two's complement.
    const auto product = [](T a, T b) {
      return static_cast<unsigned __int128>(W{a}) * static_cast<unsigned __int128>(W{b});
    };
    check2<T>("mul.lo." + type,
              [&](T a, T b) { return static_cast<T>(static_cast<U>(product(a, b))); });
    check2<T>("mul.hi." + type,
              [&](T a, T b) { return static_cast<T>(static_cast<U>(product(a, b) >> bits)); });
    check3<T>("mad.lo." + type, [&](T a, T b, T c) {
      return static_cast<T>(static_cast<U>(product(a, b) + static_cast<U>(c)));
    });
    check3<T>("mad.hi." + type, [&](T a, T b, T c) {
      return static_cast<T>(
          static_cast<U>(static_cast<U>(product(a, b) >> bits) + static_cast<U>(c)));
    });
    check2<T>("min." + type, [](T a, T b) { return std::min(a, b); });
    check2<T>("max." + type, [](T a, T b) { return std::max(a, b); });
    check2<T>("div." + type,
              [&](T a, T b) { return b == 0 ? static_cast<T>(-1) : wrap(W{a} / W{b}); });
    check2<T>("rem." + type, [&](T a, T b) { return b == 0 ? a : wrap(W{a} % W{b}); });
    check3<T>("sad." + type,
              [&](T a, T b, T c) { return wrap(W{c} + (a < b ? W{b} - a : W{a} - b)); });
  }
};

TEST_F(IntegerTest, U16) { check_type<uint16_t>("u16"); }
TEST_F(IntegerTest, S16) { check_type<int16_t>("s16"); }
TEST_F(IntegerTest, U32) { check_type<uint32_t>("u32"); }
TEST_F(IntegerTest, S32) { check_type<int32_t>("s32"); }
TEST_F(IntegerTest, U64) { check_type<uint64_t>("u64"); }
TEST_F(IntegerTest, S64) { check_type<int64_t>("s64"); }

TEST_F(IntegerTest, WideProducts) {
  check2<uint16_t, uint32_t>("mul.wide.u16",
                             [](uint16_t a, uint16_t b) { return uint32_t{a} * b; });
  check2<int16_t, int32_t>("mul.wide.s16", [](int16_t a, int16_t b) { return int32_t{a} * b; });
  check2<uint32_t, uint64_t>("mul.wide.u32",
                             [](uint32_t a, uint32_t b) { return uint64_t{a} * b; });
  check2<int32_t, int64_t>("mul.wide.s32", [](int32_t a, int32_t b) { return int64_t{a} * b; });
  check3<uint32_t, uint64_t>(
      "mad.wide.u32", [](uint32_t a, uint32_t b, uint64_t c) { return uint64_t{a} * b + c; });
  check3<int32_t, int64_t>("mad.wide.s32", [](int32_t a, int32_t b, int64_t c) {
    return static_cast<int64_t>(static_cast<uint64_t>(int64_t{a} * b) + static_cast<uint64_t>(c));
  });
  check3<uint16_t, uint32_t>(
      "mad.wide.u16", [](uint16_t a, uint16_t b, uint32_t c) { return uint32_t{a} * b + c; });
}

TEST_F(IntegerTest, Saturation) {
  const auto clamp = [](int64_t v) {
    return static_cast<int32_t>(std::clamp<int64_t>(v, INT32_MIN, INT32_MAX));
  };
  check2<int32_t>("add.sat.s32", [&](int32_t a, int32_t b) { return clamp(int64_t{a} + b); });
  check2<int32_t>("sub.sat.s32", [&](int32_t a, int32_t b) { return clamp(int64_t{a} - b); });
  check3<int32_t>("mad.hi.sat.s32", [&](int32_t a, int32_t b, int32_t c) {
    return clamp((int64_t{a} * b >> 32) + c);
  });
}

TEST_F(IntegerTest, TwentyFourBits) {
  const auto u24 = [](uint32_t v) { return uint64_t{v & 0xffffffu}; };
  const auto s24 = [](int32_t v) {
    return int64_t{static_cast<int32_t>(static_cast<uint32_t>(v) << 8) >> 8};
  };
  check2<uint32_t>("mul24.lo.u32",
                   [&](uint32_t a, uint32_t b) { return static_cast<uint32_t>(u24(a) * u24(b)); });
  check2<uint32_t>("mul24.hi.u32", [&](uint32_t a, uint32_t b) {
    return static_cast<uint32_t>(u24(a) * u24(b) >> 16);
  });
  check2<int32_t>("mul24.lo.s32",
                  [&](int32_t a, int32_t b) { return static_cast<int32_t>(s24(a) * s24(b)); });
  check2<int32_t>("mul24.hi.s32", [&](int32_t a, int32_t b) {
    return static_cast<int32_t>(s24(a) * s24(b) >> 16);
  });
  check3<uint32_t>("mad24.lo.u32", [&](uint32_t a, uint32_t b, uint32_t c) {
    return static_cast<uint32_t>(u24(a) * u24(b) + c);
  });
  check3<int32_t>("mad24.hi.sat.s32", [&](int32_t a, int32_t b, int32_t c) {
    const int64_t sum = int64_t{static_cast<int32_t>(s24(a) * s24(b) >> 16)} + c;
    return static_cast<int32_t>(std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX));
  });
}

TEST_F(IntegerTest, Unary) {
  const auto check = [&]<typename T>(const std::string& type, T) {
    using U = std::make_unsigned_t<T>;
    const auto a = integers<T>(kCount);
    const auto negated = apply<T>("neg." + type + " %d, %a;", a),
               absolute = apply<T>("abs." + type + " %d, %a;", a);
    for (size_t i = 0; i < kCount; ++i) {
      const auto minus = static_cast<T>(static_cast<U>(U{0} - static_cast<U>(a[i])));
      ASSERT_EQ(negated[i], minus);
      ASSERT_EQ(absolute[i], a[i] < 0 ? minus : a[i]);
    }
  };
  check("s16", int16_t{});
  check("s32", int32_t{});
  check("s64", int64_t{});
}

// 128-bit numbers through the carry: add, subtract, multiply and add.
TEST_F(IntegerTest, CarryChains) {
  using W = unsigned __int128;
  const auto a = integers<uint64_t>(kCount), b = integers<uint64_t>(kCount),
             c = integers<uint64_t>(kCount);
  const std::string low =
      "mov.b64 {%t1, %t2}, %a; mov.b64 {%t3, %t4}, %b; mov.b64 {%t5, %t6}, %c;\n";
  // (a:c) + (b:b), low words first; the upper 64 bits are the result.
  auto d = apply<uint64_t>("add.cc.u64 %u1, %a, %b; addc.u64 %d, %c, %b;", a, b, c);
  for (size_t i = 0; i < kCount; ++i)
    ASSERT_EQ(d[i], static_cast<uint64_t>(((W{c[i]} << 64 | a[i]) + (W{b[i]} << 64 | b[i])) >> 64));
  d = apply<uint64_t>("sub.cc.u64 %u1, %a, %b; subc.u64 %d, %c, %b;", a, b, c);
  for (size_t i = 0; i < kCount; ++i)
    ASSERT_EQ(d[i], static_cast<uint64_t>(((W{c[i]} << 64 | a[i]) - (W{b[i]} << 64 | b[i])) >> 64));
  d = apply<uint64_t>(
      low + "add.cc.u32 %t7, %t1, %t3; addc.u32 %t8, %t2, %t4; mov.b64 %d, {%t7, %t8};", a, b, c);
  for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(d[i], a[i] + b[i]);
  d = apply<uint64_t>(
      low + "sub.cc.u32 %t7, %t1, %t3; subc.u32 %t8, %t2, %t4; mov.b64 %d, {%t7, %t8};", a, b, c);
  for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(d[i], a[i] - b[i]);
  // Behind a subtraction addc adds 1 where nothing was borrowed, and subc takes 1 off where an
  // addition had no carry.
  d = apply<uint64_t>("sub.cc.u64 %u1, %a, %b; addc.u64 %d, %c, %c;", a, b, c);
  for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(d[i], c[i] + c[i] + (a[i] >= b[i] ? 1 : 0));
  d = apply<uint64_t>("add.cc.u64 %u1, %a, %b; subc.u64 %d, %c, %b;", a, b, c);
  for (size_t i = 0; i < kCount; ++i)
    ASSERT_EQ(d[i], c[i] - b[i] - ((W{a[i]} + b[i]) >> 64 == 0 ? 1 : 0));
  // The low 64 bits of a * b + c by words, as big-number libraries do it.
  d = apply<uint64_t>(low +
                          "mad.lo.cc.u32 %t7, %t1, %t3, %t5; madc.hi.u32 %t8, %t1, %t3, %t6; "
                          "mad.lo.u32 %t8, %t1, %t4, %t8;"
                          "mad.lo.u32 %t8, %t2, %t3, %t8; mov.b64 %d, {%t7, %t8};",
                      a, b, c);
  for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(d[i], a[i] * b[i] + c[i]);
  // The carry goes through an addition in the middle: addc.cc.
  const auto carry = apply<uint32_t>(
      low + "add.cc.u32 %t7, %t1, %t3; addc.cc.u32 %t8, %t2, %t4; addc.u32 %d, 0, 0;", a, b, c);
  for (size_t i = 0; i < kCount; ++i)
    ASSERT_EQ(carry[i], static_cast<uint32_t>((W{a[i]} + b[i]) >> 64));
}

TEST_F(IntegerTest, DotProducts) {
  const auto a = integers<uint32_t>(kCount), b = integers<uint32_t>(kCount),
             c = integers<uint32_t>(kCount);
  const auto part = [](uint32_t v, unsigned i, unsigned bits, bool is_signed) {
    const uint32_t u = v >> i * bits & ((1u << bits) - 1);
    return is_signed && u >> (bits - 1) != 0 ? int64_t{u} - (int64_t{1} << bits) : int64_t{u};
  };
  for (const bool sa : {false, true}) {
    for (const bool sb : {false, true}) {
      const std::string types = std::string(sa ? ".s32" : ".u32") + (sb ? ".s32" : ".u32");
      const auto d4 = apply<uint32_t>("dp4a" + types + " %d, %a, %b, %c;", a, b, c);
      const auto lo = apply<uint32_t>("dp2a.lo" + types + " %d, %a, %b, %c;", a, b, c);
      const auto hi = apply<uint32_t>("dp2a.hi" + types + " %d, %a, %b, %c;", a, b, c);
      for (size_t i = 0; i < kCount; ++i) {
        int64_t e4 = c[i], el = c[i], eh = c[i];
        for (unsigned k = 0; k < 4; ++k) e4 += part(a[i], k, 8, sa) * part(b[i], k, 8, sb);
        for (unsigned k = 0; k < 2; ++k) {
          el += part(a[i], k, 16, sa) * part(b[i], k, 8, sb);
          eh += part(a[i], k, 16, sa) * part(b[i], k + 2, 8, sb);
        }
        ASSERT_EQ(d4[i], static_cast<uint32_t>(e4));
        ASSERT_EQ(lo[i], static_cast<uint32_t>(el));
        ASSERT_EQ(hi[i], static_cast<uint32_t>(eh));
      }
    }
  }
}

}  // namespace
}  // namespace fargpu::sim

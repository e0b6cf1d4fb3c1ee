// Logic, shifts and bit fields against the host.
#include "tests/ptx/op_fixture.h"

namespace fargpu::sim {
namespace {

class BitsTest : public OpTest {};

TEST_F(BitsTest, Logic) {
  const auto check = [&]<typename T>(const std::string& bits, T) {
    const auto a = integers<T>(kCount), b = integers<T>(kCount);
    const auto r_and = apply<T>("and.b" + bits + " %d, %a, %b;", a, b),
               r_or = apply<T>("or.b" + bits + " %d, %a, %b;", a, b);
    const auto r_xor = apply<T>("xor.b" + bits + " %d, %a, %b;", a, b),
               r_not = apply<T>("not.b" + bits + " %d, %a;", a);
    const auto r_cnot = apply<T>("cnot.b" + bits + " %d, %a;", a);
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(r_and[i], static_cast<T>(a[i] & b[i]));
      ASSERT_EQ(r_or[i], static_cast<T>(a[i] | b[i]));
      ASSERT_EQ(r_xor[i], static_cast<T>(a[i] ^ b[i]));
      ASSERT_EQ(r_not[i], static_cast<T>(~a[i]));
      ASSERT_EQ(r_cnot[i], a[i] == 0 ? 1 : 0);
    }
  };
  check("16", uint16_t{});
  check("32", uint32_t{});
  check("64", uint64_t{});
}

TEST_F(BitsTest, Shifts) {
  const auto check = [&]<typename T>(const std::string& type, T) {
    constexpr uint32_t bits = sizeof(T) * 8;
    const auto a = integers<T>(kCount);
    auto by = below<uint32_t>(kCount, bits + 8);
    by[0] = ~0u;
    const auto left = apply<T>("shl.b" + std::to_string(bits) + " %d, %a, %b;", a, by);
    const auto right = apply<T>("shr." + type + " %d, %a, %b;", a, by);
    for (size_t i = 0; i < kCount; ++i) {
      using U = std::make_unsigned_t<T>;
      const T l = by[i] >= bits ? T{0} : static_cast<T>(static_cast<U>(a[i]) << by[i]);
      const T r =
          by[i] >= bits ? (a[i] < 0 ? static_cast<T>(-1) : T{0}) : static_cast<T>(a[i] >> by[i]);
      ASSERT_EQ(left[i], l) << by[i];
      ASSERT_EQ(right[i], r) << by[i];
    }
  };
  check("u16", uint16_t{});
  check("s16", int16_t{});
  check("u32", uint32_t{});
  check("s32", int32_t{});
  check("b32", uint32_t{});
  check("u64", uint64_t{});
  check("s64", int64_t{});
}

TEST_F(BitsTest, FunnelShifts) {
  const auto a = integers<uint32_t>(kCount), b = integers<uint32_t>(kCount),
             c = below<uint32_t>(kCount, 40);
  for (const bool left : {false, true}) {
    for (const bool wrap : {false, true}) {
      const auto d = apply<uint32_t>(std::string("shf.") + (left ? "l" : "r") +
                                         (wrap ? ".wrap" : ".clamp") + ".b32 %d, %a, %b, %c;",
                                     a, b, c);
      for (size_t i = 0; i < kCount; ++i) {
        const uint32_t n = wrap ? c[i] & 31 : std::min(c[i], 32u);
        const uint64_t lo = a[i], hi = b[i];
        const uint64_t expected = left ? (hi << n | (n == 0 ? 0 : lo >> (32 - n)))
                                       : (n == 32 ? hi : (lo >> n | (n == 0 ? 0 : hi << (32 - n))));
        ASSERT_EQ(d[i], static_cast<uint32_t>(left && n == 32 ? lo : expected));
      }
    }
  }
}

TEST_F(BitsTest, Counting) {
  const auto a = integers<uint32_t>(kCount);
  const auto b = integers<uint64_t>(kCount);
  const auto p32 = apply<uint32_t>("popc.b32 %d, %a;", a),
             p64 = apply<uint32_t>("popc.b64 %d, %a;", b);
  const auto z32 = apply<uint32_t>("clz.b32 %d, %a;", a),
             z64 = apply<uint32_t>("clz.b64 %d, %a;", b);
  const auto r32 = apply<uint32_t>("brev.b32 %d, %a;", a);
  const auto r64 = apply<uint64_t>("brev.b64 %d, %a;", b);
  for (size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(p32[i], std::popcount(a[i]));
    ASSERT_EQ(p64[i], std::popcount(b[i]));
    ASSERT_EQ(z32[i], std::countl_zero(a[i]));
    ASSERT_EQ(z64[i], std::countl_zero(b[i]));
    uint64_t e32 = 0, e64 = 0;
    for (int k = 0; k < 32; ++k) e32 |= uint64_t{a[i] >> k & 1} << (31 - k);
    for (int k = 0; k < 64; ++k) e64 |= (b[i] >> k & 1) << (63 - k);
    ASSERT_EQ(r32[i], e32);
    ASSERT_EQ(r64[i], e64);
  }
}

TEST_F(BitsTest, FindHighest) {
  const auto check = [&]<typename T>(const std::string& type, T) {
    const auto a = integers<T>(kCount);
    const auto at = apply<uint32_t>("bfind." + type + " %d, %a;", a),
               shift = apply<uint32_t>("bfind.shiftamt." + type + " %d, %a;", a);
    for (size_t i = 0; i < kCount; ++i) {
      uint32_t expected = ~0u;
      const T v = a[i] < 0 ? static_cast<T>(~a[i]) : a[i];
      for (uint32_t k = 0; k < sizeof(T) * 8; ++k) {
        if ((static_cast<uint64_t>(v) >> k & 1) != 0) expected = k;
      }
      ASSERT_EQ(at[i], expected);
      ASSERT_EQ(shift[i], expected == ~0u ? ~0u : sizeof(T) * 8 - 1 - expected);
    }
  };
  check("u32", uint32_t{});
  check("s32", int32_t{});
  check("u64", uint64_t{});
  check("s64", int64_t{});
}

TEST_F(BitsTest, Fields) {
  const auto check = [&]<typename T>(const std::string& type, T) {
    const uint32_t width = sizeof(T) * 8;
    const auto a = integers<T>(kCount), old = integers<T>(kCount);
    const auto pos = below<uint32_t>(kCount, width + 10), len = below<uint32_t>(kCount, width + 10);
    const auto extracted = apply<T>("bfe." + type + " %d, %a, %b, %c;", a, pos, len);
    // bfi has four sources: the length is constant here, the position from the data.
    for (const uint32_t n : {0u, 1u, 7u, 16u, width - 1, width, 300u}) {
      const auto inserted =
          apply<T>("bfi.b" + std::to_string(width) + " %d, %a, %b, %c, " + std::to_string(n) + ";",
                   a, old, pos);
      for (size_t i = 0; i < kCount; ++i) {
        uint64_t expected = static_cast<uint64_t>(old[i]);
        for (uint32_t k = 0; k < (n & 0xff) && pos[i] + k < width; ++k) {
          const uint64_t bit = static_cast<uint64_t>(a[i]) >> k & 1;
          expected = (expected & ~(uint64_t{1} << (pos[i] + k))) | bit << (pos[i] + k);
        }
        ASSERT_EQ(inserted[i], static_cast<T>(expected)) << n << " " << pos[i];
      }
    }
    for (size_t i = 0; i < kCount; ++i) {
      const auto bit = [&](uint32_t k) { return static_cast<uint64_t>(a[i]) >> k & 1; };
      const uint64_t sign =
          std::is_signed_v<T> && len[i] != 0 ? bit(std::min(pos[i] + len[i] - 1, width - 1)) : 0;
      uint64_t expected = 0;
      for (uint32_t k = 0; k < width; ++k) {
        expected |= (k < len[i] && pos[i] + k < width ? bit(pos[i] + k) : sign) << k;
      }
      ASSERT_EQ(extracted[i], static_cast<T>(expected))
          << type << " " << +a[i] << " " << pos[i] << " " << len[i];
    }
  };
  check("u32", uint32_t{});
  check("s32", int32_t{});
  check("u64", uint64_t{});
  check("s64", int64_t{});
}

TEST_F(BitsTest, Lop3AllTables) {
  const auto a = integers<uint32_t>(96), b = integers<uint32_t>(96), c = integers<uint32_t>(96);
  for (uint32_t table = 0; table < 256; table += 5) {
    const auto d =
        apply<uint32_t>("lop3.b32 %d, %a, %b, %c, " + std::to_string(table) + ";", a, b, c);
    for (size_t i = 0; i < a.size(); ++i) {
      uint32_t expected = 0;
      for (unsigned k = 0; k < 32; ++k) {
        const uint32_t index = (a[i] >> k & 1) << 2 | (b[i] >> k & 1) << 1 | (c[i] >> k & 1);
        expected |= (table >> index & 1) << k;
      }
      ASSERT_EQ(d[i], expected) << table;
    }
  }
  const auto d = apply<uint32_t>(
      "setp.eq.u32 %q, %b, 1; lop3.or.b32 %t1|%p, %a, %b, %c, 0x80, %q; selp.u32 %d, 1, 0, %p;", a,
      b, c);
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_EQ(d[i], (a[i] & b[i] & c[i]) != 0 || b[i] == 1 ? 1u : 0u);
}

TEST_F(BitsTest, Permute) {
  const auto a = integers<uint32_t>(kCount), b = integers<uint32_t>(kCount),
             c = integers<uint32_t>(kCount);
  const auto byte = [](uint32_t x, uint32_t y, unsigned s) {
    return static_cast<uint32_t>((uint64_t{y} << 32 | x) >> s * 8 & 0xff);
  };
  const auto d = apply<uint32_t>("prmt.b32 %d, %a, %b, %c;", a, b, c);
  const auto f4e = apply<uint32_t>("prmt.b32.f4e %d, %a, %b, %c;", a, b, c),
             b4e = apply<uint32_t>("prmt.b32.b4e %d, %a, %b, %c;", a, b, c);
  const auto rc8 = apply<uint32_t>("prmt.b32.rc8 %d, %a, %b, %c;", a, b, c),
             rc16 = apply<uint32_t>("prmt.b32.rc16 %d, %a, %b, %c;", a, b, c);
  const auto ecl = apply<uint32_t>("prmt.b32.ecl %d, %a, %b, %c;", a, b, c),
             ecr = apply<uint32_t>("prmt.b32.ecr %d, %a, %b, %c;", a, b, c);
  for (size_t i = 0; i < kCount; ++i) {
    uint32_t e[7] = {};
    const unsigned s = c[i] & 3;
    for (unsigned k = 0; k < 4; ++k) {
      const unsigned selector = c[i] >> 4 * k & 15;
      const uint32_t v = byte(a[i], b[i], selector & 7);
      e[0] |= (selector & 8 ? (v & 0x80 ? 0xffu : 0u) : v) << 8 * k;
      e[1] |= byte(a[i], b[i], s + k) << 8 * k;
      e[2] |= byte(a[i], b[i], (s + 8 - k) & 7) << 8 * k;
      e[3] |= byte(a[i], b[i], s) << 8 * k;
      e[4] |= byte(a[i], b[i], std::max(s, k)) << 8 * k;
      e[5] |= byte(a[i], b[i], std::min(s, k)) << 8 * k;
      e[6] |= byte(a[i], b[i], (s & 1) * 2 + (k & 1)) << 8 * k;
    }
    ASSERT_EQ(d[i], e[0]);
    ASSERT_EQ(f4e[i], e[1]);
    ASSERT_EQ(b4e[i], e[2]);
    ASSERT_EQ(rc8[i], e[3]);
    ASSERT_EQ(ecl[i], e[4]);
    ASSERT_EQ(ecr[i], e[5]);
    ASSERT_EQ(rc16[i], e[6]);
  }
}

TEST_F(BitsTest, MasksAndExtension) {
  const auto a = below<uint32_t>(kCount, 40), b = below<uint32_t>(kCount, 40),
             v = integers<uint32_t>(kCount);
  const auto clamp = apply<uint32_t>("bmsk.clamp.b32 %d, %a, %b;", a, b),
             wrap = apply<uint32_t>("bmsk.wrap.b32 %d, %a, %b;", a, b);
  const auto u = apply<uint32_t>("szext.clamp.u32 %d, %a, %b;", v, b);
  const auto s = apply<uint32_t>("szext.wrap.s32 %d, %a, %b;", v, b);
  for (size_t i = 0; i < kCount; ++i) {
    uint32_t e = 0, w = 0;
    for (uint32_t k = 0; k < 32; ++k) {
      if (k >= a[i] && k < a[i] + b[i]) e |= 1u << k;
      if (k >= (a[i] & 31) && k < (a[i] & 31) + (b[i] & 31)) w |= 1u << k;
    }
    ASSERT_EQ(clamp[i], e) << a[i] << " " << b[i];
    ASSERT_EQ(wrap[i], w) << a[i] << " " << b[i];
    const uint32_t n = std::min(b[i], 32u), m = b[i] & 31;
    ASSERT_EQ(u[i], n == 32 ? v[i] : v[i] & ((1u << n) - 1));
    const uint32_t low = m == 0 ? 0 : v[i] & ((1u << m) - 1);
    ASSERT_EQ(s[i], m != 0 && (low >> (m - 1) & 1) != 0 ? low | ~((1u << m) - 1) : low);
  }
}

TEST_F(BitsTest, FindNthSet) {
  const auto mask = integers<uint32_t>(kCount), base = below<uint32_t>(kCount, 32);
  auto nth = below<int32_t>(kCount, 9);
  for (auto& n : nth) n -= 4;
  const auto d = apply<uint32_t>("fns.b32 %d, %a, %b, %c;", mask, base, nth);
  for (size_t i = 0; i < kCount; ++i) {
    uint32_t expected = ~0u;
    if (nth[i] == 0) {
      if ((mask[i] >> base[i] & 1) != 0) expected = base[i];
    } else {
      int left = std::abs(nth[i]);
      for (int k = static_cast<int>(base[i]); k >= 0 && k<32; k += nth[i]> 0 ? 1 : -1) {
        if ((mask[i] >> k & 1) != 0 && --left == 0) {
          expected = static_cast<uint32_t>(k);
          break;
        }
      }
    }
    ASSERT_EQ(d[i], expected);
  }
}

TEST_F(BitsTest, PackAndUnpack) {
  const auto a = integers<uint64_t>(kCount);
  const auto swapped = apply<uint64_t>("mov.b64 {%t1, %t2}, %a; mov.b64 %d, {%t2, %t1};", a);
  const auto high = apply<uint32_t>("mov.b64 {_, %d}, %a;", a);
  const auto halves = apply<uint64_t>(
      "{.reg .b16 %h<4>; mov.b64 {%h0, %h1, %h2, %h3}, %a; mov.b64 %d, {%h3, %h2, %h1, %h0};}", a);
  for (size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(swapped[i], a[i] << 32 | a[i] >> 32);
    ASSERT_EQ(high[i], a[i] >> 32);
    uint64_t e = 0;
    for (unsigned k = 0; k < 4; ++k) e |= (a[i] >> 16 * k & 0xffff) << (48 - 16 * k);
    ASSERT_EQ(halves[i], e);
  }
}

TEST_F(BitsTest, VideoPacked) {
  const auto a = integers<uint32_t>(kCount), b = integers<uint32_t>(kCount),
             c = integers<uint32_t>(kCount);
  const auto difference = apply<uint32_t>("vabsdiff4.u32.u32.u32.add %d, %a, %b, %c;", a, b, c);
  const auto sum = apply<uint32_t>("vadd2.s32.s32.s32.sat %d, %a, %b, %c;", a, b, c);
  const auto greatest = apply<uint32_t>("vmax4.u32.u32.u32 %d, %a, %b, %c;", a, b, c);
  const auto wide = apply<uint32_t>("vadd.s32.u32.s32.sat.max %d, %a.b1, %b.h0, %c;", a, b, c);
  for (size_t i = 0; i < kCount; ++i) {
    uint32_t e = c[i], s = 0, g = 0;
    for (unsigned k = 0; k < 4; ++k) {
      const int x = a[i] >> 8 * k & 0xff, y = b[i] >> 8 * k & 0xff;
      e += static_cast<uint32_t>(std::abs(x - y));
      g |= static_cast<uint32_t>(std::max(x, y)) << 8 * k;
    }
    for (unsigned k = 0; k < 2; ++k) {
      const int x = static_cast<int16_t>(a[i] >> 16 * k), y = static_cast<int16_t>(b[i] >> 16 * k);
      s |= (static_cast<uint32_t>(std::clamp(x + y, -32768, 32767)) & 0xffff) << 16 * k;
    }
    ASSERT_EQ(difference[i], e);
    ASSERT_EQ(sum[i], s);
    ASSERT_EQ(greatest[i], g);
    const int w = static_cast<int>(a[i] >> 8 & 0xff) + static_cast<int16_t>(b[i]);
    ASSERT_EQ(static_cast<int32_t>(wide[i]), std::max(w, static_cast<int32_t>(c[i])));
  }
}

}  // namespace
}  // namespace fargpu::sim

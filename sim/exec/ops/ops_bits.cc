// Bit manipulation: counting, fields, permutation, funnel shifts, three-input logic, dot products
// of bytes.
#include <bit>
#include <string>
#include <type_traits>

#define FARGPU_SIM_ISA isa_common
#include "sim/exec/ops/lanes.h"
#include "sim/exec/ops/ops.h"

namespace fargpu::sim {
namespace {

using namespace isa_common;  // NOLINT: the lane templates of this file's build

template <typename T>
inline constexpr uint32_t kBits = sizeof(T) * 8;

struct PopCount {
  template <typename T>
  static uint32_t run(T a) {
    return static_cast<uint32_t>(std::popcount(a));
  }
};
struct LeadingZeros {
  template <typename T>
  static uint32_t run(T a) {
    return static_cast<uint32_t>(std::countl_zero(a));
  }
};
struct Reverse {
  static uint32_t run(uint32_t a) {
    a = (a >> 1 & 0x55555555u) | (a & 0x55555555u) << 1;
    a = (a >> 2 & 0x33333333u) | (a & 0x33333333u) << 2;
    a = (a >> 4 & 0x0f0f0f0fu) | (a & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(a);
  }
  static uint64_t run(uint64_t a) {
    return uint64_t{run(static_cast<uint32_t>(a))} << 32 | run(static_cast<uint32_t>(a >> 32));
  }
};

// The highest bit that differs from the sign (or is set); all ones when there is none. kShift: as a
// shift amount from the top.
template <bool kShift>
struct FindBit {
  template <typename T>
  static uint32_t run(T a) {
    using U = std::make_unsigned_t<T>;
    auto bits = static_cast<U>(a);
    if constexpr (std::is_signed_v<T>) {
      if (a < 0) bits = static_cast<U>(~bits);
    }
    if (bits == 0) return ~0u;
    const auto zeros = static_cast<uint32_t>(std::countl_zero(bits));
    return kShift ? zeros : kBits<T> - 1 - zeros;
  }
};

struct ExtractField {
  template <typename T>
  static T run(T a, uint32_t position, uint32_t length) {
    using U = std::make_unsigned_t<T>;
    const uint32_t pos = position & 0xffu, len = length & 0xffu;
    const auto bits = static_cast<U>(a);
    if (len == 0) return 0;
    const bool is_signed = std::is_signed_v<T>;
    const uint32_t top = pos + len - 1 < kBits<T> - 1 ? pos + len - 1 : kBits<T> - 1;
    const bool sign = is_signed && (bits >> top & 1u) != 0;
    const U low = pos < kBits<T> ? static_cast<U>(bits >> pos) : U{0};
    // What lies above the value's own bits is filled with the sign.
    const uint32_t have = pos < kBits<T> ? (len < kBits<T> - pos ? len : kBits<T> - pos) : 0;
    const U mask = have >= kBits<T> ? ~U{0} : static_cast<U>((U{1} << have) - 1);
    return static_cast<T>((low & mask) | (sign ? static_cast<U>(~mask) : U{0}));
  }
};

struct InsertField {
  template <typename T>
  static T run(T a, T b, uint32_t position, uint32_t length) {
    const uint32_t pos = position & 0xffu, len = length & 0xffu;
    if (len == 0 || pos >= kBits<T>) return b;
    const T field = len >= kBits<T> ? ~T{0} : static_cast<T>((T{1} << len) - 1);
    const T mask = static_cast<T>(field << pos);
    return static_cast<T>((b & ~mask) | (static_cast<T>(a << pos) & mask));
  }
};

template <bool kWrap>
struct BitMask {
  static uint32_t run(uint32_t a, uint32_t b) {
    const uint32_t position = kWrap ? a & 31u : a < 32 ? a : 32;
    const uint32_t width = kWrap ? b & 31u : b < 32 ? b : 32;
    if (position >= 32 || width == 0) return 0;
    const uint32_t ones = width >= 32 ? ~0u : (1u << width) - 1;
    return ones << position;
  }
};

template <bool kWrap>
struct ExtendField {
  template <typename T>
  static T run(T a, uint32_t b) {
    const uint32_t width = kWrap ? b & 31u : b < 32 ? b : 32;
    if (width == 0) return 0;
    if (width >= 32) return a;
    const uint32_t shift = 32 - width;
    return static_cast<T>(static_cast<T>(static_cast<uint32_t>(a) << shift) >> shift);
  }
};

// The n-th set bit from a base, up for positive n and down for negative.
struct FindNth {
  static uint32_t run(uint32_t mask, uint32_t base, int32_t offset) {
    if (base > 31) return ~0u;
    if (offset == 0) return (mask >> base & 1u) != 0 ? base : ~0u;
    const int step = offset > 0 ? 1 : -1;
    int64_t left = offset > 0 ? int64_t{offset} : -int64_t{offset};
    for (auto i = static_cast<int32_t>(base); i >= 0 && i < 32; i += step) {
      if ((mask >> i & 1u) != 0 && --left == 0) return static_cast<uint32_t>(i);
    }
    return ~0u;
  }
};

struct Permute {
  static uint32_t pick(uint64_t bytes, uint32_t selector) {
    const auto byte = static_cast<uint32_t>(bytes >> (selector & 7u) * 8 & 0xffu);
    return (selector & 8u) != 0 ? ((byte & 0x80u) != 0 ? 0xffu : 0u) : byte;
  }
  // imm: 0 general, then f4e, b4e, rc8, ecl, ecr, rc16.
  static uint32_t run(uint32_t a, uint32_t b, uint32_t c, uint64_t mode) {
    const uint64_t bytes = uint64_t{b} << 32 | a;
    static constexpr uint16_t kTables[7][4] = {{},
                                               {0x3210, 0x4321, 0x5432, 0x6543},
                                               {0x5670, 0x6701, 0x7012, 0x0123},
                                               {0x0000, 0x1111, 0x2222, 0x3333},
                                               {0x3210, 0x3211, 0x3222, 0x3333},
                                               {0x0000, 0x1110, 0x2210, 0x3210},
                                               {0x1010, 0x3232, 0x1010, 0x3232}};
    const uint32_t selectors = mode == 0 ? c : kTables[mode][c & 3u];
    uint32_t result = 0;
    for (unsigned i = 0; i < 4; ++i) result |= pick(bytes, selectors >> 4 * i) << 8 * i;
    return result;
  }
};

struct Logic3 {
  static uint32_t run(uint32_t a, uint32_t b, uint32_t c, uint64_t table) {
    uint32_t r = 0;
    if ((table & 0x01) != 0) r |= ~a & ~b & ~c;
    if ((table & 0x02) != 0) r |= ~a & ~b & c;
    if ((table & 0x04) != 0) r |= ~a & b & ~c;
    if ((table & 0x08) != 0) r |= ~a & b & c;
    if ((table & 0x10) != 0) r |= a & ~b & ~c;
    if ((table & 0x20) != 0) r |= a & ~b & c;
    if ((table & 0x40) != 0) r |= a & b & ~c;
    if ((table & 0x80) != 0) r |= a & b & c;
    return r;
  }
};
// The predicate form of lop3: (d != 0) combined with in.c; sub as in comparisons (2 or, 1 and).
void logic3_predicate(Exec& x, const Instr& in) {
  const uint32_t* d = x.at<uint32_t>(in.a);
  uint32_t bits = 0;
  for (uint32_t l = 0; l < kLanes; ++l) bits |= (d[l] != 0 ? 1u : 0u) << l;
  const uint32_t q = x.predicate(in.c, (in.flags & kInvertC) != 0);
  x.set_predicate(in.dst, in.sub == 1 ? bits & q : bits | q);
}

template <bool kLeft, bool kWrap>
struct Funnel {
  static uint32_t run(uint32_t a, uint32_t b, uint32_t c) {
    const uint32_t n = kWrap ? c & 31u : c < 32 ? c : 32;
    const uint64_t both = uint64_t{b} << 32 | a;
    return kLeft ? static_cast<uint32_t>((both << n) >> 32) : static_cast<uint32_t>(both >> n);
  }
};

inline int32_t element(uint32_t a, unsigned i, bool is_signed, unsigned bits) {
  const uint32_t v = a >> i * bits & ((1u << bits) - 1);
  const uint32_t sign = 1u << (bits - 1);
  return is_signed ? static_cast<int32_t>((v ^ sign) - sign) : static_cast<int32_t>(v);
}
template <bool kSignedA, bool kSignedB>
struct Dot4 {
  static uint32_t run(uint32_t a, uint32_t b, uint32_t c) {
    for (unsigned i = 0; i < 4; ++i) {
      c += static_cast<uint32_t>(element(a, i, kSignedA, 8) * element(b, i, kSignedB, 8));
    }
    return c;
  }
};
// imm: 0 for the low two bytes of b, 2 for the high ones.
template <bool kSignedA, bool kSignedB>
struct Dot2 {
  static uint32_t run(uint32_t a, uint32_t b, uint32_t c, uint64_t high) {
    for (unsigned i = 0; i < 2; ++i) {
      c += static_cast<uint32_t>(element(a, i, kSignedA, 16)) *
           static_cast<uint32_t>(element(b, i + static_cast<unsigned>(high), kSignedB, 8));
    }
    return c;
  }
};

}  // namespace

void add_bit_ops(OpTable& table) {
  table.add("popc.32", unary<PopCount, uint32_t, uint32_t>);
  table.add("popc.64", unary<PopCount, uint32_t, uint64_t>);
  table.add("clz.32", unary<LeadingZeros, uint32_t, uint32_t>);
  table.add("clz.64", unary<LeadingZeros, uint32_t, uint64_t>);
  table.add("brev.32", unary<Reverse, uint32_t, uint32_t>);
  table.add("brev.64", unary<Reverse, uint64_t, uint64_t>);
  table.add("bfind.u32", unary<FindBit<false>, uint32_t, uint32_t>);
  table.add("bfind.s32", unary<FindBit<false>, uint32_t, int32_t>);
  table.add("bfind.u64", unary<FindBit<false>, uint32_t, uint64_t>);
  table.add("bfind.s64", unary<FindBit<false>, uint32_t, int64_t>);
  table.add("bfind.shiftamt.u32", unary<FindBit<true>, uint32_t, uint32_t>);
  table.add("bfind.shiftamt.s32", unary<FindBit<true>, uint32_t, int32_t>);
  table.add("bfind.shiftamt.u64", unary<FindBit<true>, uint32_t, uint64_t>);
  table.add("bfind.shiftamt.s64", unary<FindBit<true>, uint32_t, int64_t>);
  table.add("bfe.u32", ternary<ExtractField, uint32_t, uint32_t, uint32_t, uint32_t>);
  table.add("bfe.s32", ternary<ExtractField, int32_t, int32_t, uint32_t, uint32_t>);
  table.add("bfe.u64", ternary<ExtractField, uint64_t, uint64_t, uint32_t, uint32_t>);
  table.add("bfe.s64", ternary<ExtractField, int64_t, int64_t, uint32_t, uint32_t>);
  table.add("bfi.32", quaternary<InsertField, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t>);
  table.add("bfi.64", quaternary<InsertField, uint64_t, uint64_t, uint64_t, uint32_t, uint32_t>);
  table.add("bmsk.clamp", binary<BitMask<false>, uint32_t, uint32_t, uint32_t>);
  table.add("bmsk.wrap", binary<BitMask<true>, uint32_t, uint32_t, uint32_t>);
  table.add("szext.clamp.u32", binary<ExtendField<false>, uint32_t, uint32_t, uint32_t>);
  table.add("szext.clamp.s32", binary<ExtendField<false>, int32_t, int32_t, uint32_t>);
  table.add("szext.wrap.u32", binary<ExtendField<true>, uint32_t, uint32_t, uint32_t>);
  table.add("szext.wrap.s32", binary<ExtendField<true>, int32_t, int32_t, uint32_t>);
  table.add("fns.32", ternary<FindNth, uint32_t, uint32_t, uint32_t, int32_t>);
  table.add("prmt", ternary_imm<Permute, uint32_t, uint32_t, uint32_t, uint32_t>);
  table.add("lop3", ternary_imm<Logic3, uint32_t, uint32_t, uint32_t, uint32_t>);
  table.add("lop3.pred", logic3_predicate);
  table.add("shf.l.clamp", ternary<Funnel<true, false>, uint32_t, uint32_t, uint32_t, uint32_t>);
  table.add("shf.l.wrap", ternary<Funnel<true, true>, uint32_t, uint32_t, uint32_t, uint32_t>);
  table.add("shf.r.clamp", ternary<Funnel<false, false>, uint32_t, uint32_t, uint32_t, uint32_t>);
  table.add("shf.r.wrap", ternary<Funnel<false, true>, uint32_t, uint32_t, uint32_t, uint32_t>);
  table.add("dp4a.u32.u32", ternary<Dot4<false, false>, uint32_t, uint32_t, uint32_t, uint32_t>);
  table.add("dp4a.u32.s32", ternary<Dot4<false, true>, uint32_t, uint32_t, uint32_t, uint32_t>);
  table.add("dp4a.s32.u32", ternary<Dot4<true, false>, uint32_t, uint32_t, uint32_t, uint32_t>);
  table.add("dp4a.s32.s32", ternary<Dot4<true, true>, uint32_t, uint32_t, uint32_t, uint32_t>);
  table.add("dp2a.u32.u32",
            ternary_imm<Dot2<false, false>, uint32_t, uint32_t, uint32_t, uint32_t>);
  table.add("dp2a.u32.s32", ternary_imm<Dot2<false, true>, uint32_t, uint32_t, uint32_t, uint32_t>);
  table.add("dp2a.s32.u32", ternary_imm<Dot2<true, false>, uint32_t, uint32_t, uint32_t, uint32_t>);
  table.add("dp2a.s32.s32", ternary_imm<Dot2<true, true>, uint32_t, uint32_t, uint32_t, uint32_t>);
}

}  // namespace fargpu::sim

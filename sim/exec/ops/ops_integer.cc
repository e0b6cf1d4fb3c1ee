// Integer arithmetic, logic and shifts. Wrapping everywhere; division by zero gives all ones, as on
// the device.
#include <type_traits>

#include "sim/exec/ops/lanes.h"
#include "sim/exec/ops/ops.h"

namespace fargpu::sim::FARGPU_SIM_ISA {
namespace {

template <typename T>
struct Wider;
template <>
struct Wider<uint16_t> {
  using type = uint32_t;
};
template <>
struct Wider<int16_t> {
  using type = int32_t;
};
template <>
struct Wider<uint32_t> {
  using type = uint64_t;
};
template <>
struct Wider<int32_t> {
  using type = int64_t;
};
template <>
struct Wider<uint64_t> {
  using type = unsigned __int128;
};
template <>
struct Wider<int64_t> {
  using type = __int128;
};
template <typename T>
using wider_t = typename Wider<T>::type;
template <typename T>
inline constexpr unsigned kBits = sizeof(T) * 8;

struct Move {
  template <typename T>
  static T run(T a) {
    return a;
  }
};
struct Not {
  template <typename T>
  static T run(T a) {
    return static_cast<T>(~a);
  }
};
struct LogicalNot {
  template <typename T>
  static T run(T a) {
    return a == 0 ? 1 : 0;
  }
};
struct Negate {
  template <typename T>
  static T run(T a) {
    return static_cast<T>(T{0} - a);
  }
};
struct Absolute {
  template <typename T>
  static T run(T a) {
    const T sign = static_cast<T>(T{0} - (a >> (kBits<T> - 1)));
    return static_cast<T>((a ^ sign) - sign);
  }
};
struct Add {
  template <typename T>
  static T run(T a, T b) {
    return static_cast<T>(a + b);
  }
};
struct Subtract {
  template <typename T>
  static T run(T a, T b) {
    return static_cast<T>(a - b);
  }
};
struct And {
  template <typename T>
  static T run(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <typename T>
  static T run(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <typename T>
  static T run(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};
struct Minimum {
  template <typename T>
  static T run(T a, T b) {
    return a < b ? a : b;
  }
};
struct Maximum {
  template <typename T>
  static T run(T a, T b) {
    return a < b ? b : a;
  }
};
struct MultiplyLow {
  template <typename T>
  static T run(T a, T b) {
    if constexpr (sizeof(T) == 2)
      return static_cast<T>(uint32_t{a} * b);
    else
      return a * b;
  }
  template <typename T>
  static T run(T a, T b, T c) {
    return static_cast<T>(run(a, b) + c);
  }
};
struct MultiplyHigh {
  template <typename T>
  static T run(T a, T b) {
    return static_cast<T>(static_cast<wider_t<T>>(a) * b >> kBits<T>);
  }
};
struct MultiplyAddHigh {
  template <typename T>
  static T run(T a, T b, T c) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(MultiplyHigh::run(a, b)) + static_cast<U>(c));
  }
};
struct MultiplyAddHighSaturate {
  static int32_t run(int32_t a, int32_t b, int32_t c) {
    const int64_t sum = int64_t{MultiplyHigh::run(a, b)} + c;
    return static_cast<int32_t>(sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum);
  }
};
struct MultiplyWide {
  template <typename T>
  static wider_t<T> run(T a, T b) {
    return static_cast<wider_t<T>>(a) * b;
  }
  template <typename T>
  static wider_t<T> run(T a, T b, wider_t<T> c) {
    using U = std::make_unsigned_t<wider_t<T>>;
    return static_cast<wider_t<T>>(static_cast<U>(run(a, b)) + static_cast<U>(c));
  }
};
struct Divide {
  template <typename T>
  static T run(T a, T b) {
    if (b == 0) return static_cast<T>(-1);
    if constexpr (std::is_signed_v<T>) {
      if (b == -1)
        return static_cast<T>(std::make_unsigned_t<T>{0} - static_cast<std::make_unsigned_t<T>>(a));
    }
    return static_cast<T>(a / b);
  }
};
struct Remainder {
  template <typename T>
  static T run(T a, T b) {
    if (b == 0) return a;
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return 0;
    }
    return static_cast<T>(a % b);
  }
};
struct AddSaturate {
  static int32_t run(int32_t a, int32_t b) {
    const int64_t sum = int64_t{a} + b;
    return static_cast<int32_t>(sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum);
  }
};
struct SubtractSaturate {
  static int32_t run(int32_t a, int32_t b) {
    const int64_t sum = int64_t{a} - b;
    return static_cast<int32_t>(sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum);
  }
};
struct ShiftLeft {
  template <typename T>
  static T run(T a, uint32_t by) {
    return by >= kBits<T> ? T{0} : static_cast<T>(a << (by & (kBits<T> - 1)));
  }
};
struct ShiftRight {
  template <typename T>
  static T run(T a, uint32_t by) {
    const uint32_t most = kBits<T> - 1;
    if constexpr (std::is_signed_v<T>)
      return static_cast<T>(a >> (by > most ? most : by));
    else
      return by > most ? T{0} : static_cast<T>(a >> (by & most));
  }
};
struct AbsoluteDifference {  // sad: c + |a - b|
  template <typename T>
  static T run(T a, T b, T c) {
    using U = std::make_unsigned_t<T>;
    const U difference = a < b ? static_cast<U>(static_cast<U>(b) - static_cast<U>(a))
                               : static_cast<U>(static_cast<U>(a) - static_cast<U>(b));
    return static_cast<T>(static_cast<U>(static_cast<U>(c) + difference));
  }
};
inline int64_t low24(int32_t a) { return static_cast<int32_t>(static_cast<uint32_t>(a) << 8) >> 8; }
inline uint64_t low24(uint32_t a) { return a & 0xffffffu; }
struct Multiply24Low {
  template <typename T>
  static T run(T a, T b) {
    return static_cast<T>(low24(a) * low24(b));
  }
};
struct Multiply24High {
  template <typename T>
  static T run(T a, T b) {
    return static_cast<T>(low24(a) * low24(b) >> 16);
  }
};

template <typename Op, typename T>
void add_with_carry(Exec& x, const Instr& in) {
  // in.c: the carry's predicate; in.sub bit 0: use it, bit 1: write it.
  T* d = x.at<T>(in.dst);
  const T* a = x.at<T>(in.a);
  const T* b = x.at<T>(in.b);
  const uint32_t carry = (in.sub & 1u) != 0 ? *x.at<uint32_t>(in.c) : Op::kFirstCarry;
  uint32_t out = 0;
  alignas(64) T t[kLanes];
  for (uint32_t l = 0; l < kLanes; ++l) {
    const auto sum = Op::run(a[l], b[l], carry >> l & 1u);
    t[l] = static_cast<T>(sum);
    out |= static_cast<uint32_t>(sum >> kBits<T> & 1u) << l;
  }
  blend(d, t, x.mask);
  if ((in.sub & 2u) != 0) x.set_predicate(in.c, out);
}
struct CarryAdd {
  static constexpr uint32_t kFirstCarry = 0;
  template <typename T>
  static wider_t<T> run(T a, T b, uint32_t carry) {
    return static_cast<wider_t<T>>(a) + b + carry;
  }
};
// As GPUs do it: a + ~b + carry, whose carry is set when nothing is borrowed. PTX says "borrow" and
// leaves open what addc reads behind sub.cc; the division of 128-bit integers that nvcc and NVRTC
// write reads the carry.
struct ComplementAdd {
  static constexpr uint32_t kFirstCarry = kAllLanes;
  template <typename T>
  static wider_t<T> run(T a, T b, uint32_t carry) {
    return static_cast<wider_t<T>>(a) + static_cast<T>(~b) + carry;
  }
};

template <typename T>
void select(Exec& x, const Instr& in) {
  T* d = x.at<T>(in.dst);
  const T* a = x.at<T>(in.a);
  const T* b = x.at<T>(in.b);
  const uint32_t p = x.predicate(in.c, (in.flags & kInvertC) != 0);
  alignas(64) T t[kLanes];
  FARGPU_LANES(l) t[l] = (p >> l & 1u) != 0 ? a[l] : b[l];
  blend(d, t, x.mask);
}

template <typename T>
struct SelectByInteger {
  static T run(T a, T b, int32_t c) { return c >= 0 ? a : b; }
};
template <typename T>
struct SelectByFloat {
  static T run(T a, T b, float c) { return c >= 0 ? a : b; }
};

template <typename T>
void add_unsigned(OpTable& table, const char* bits) {
  table.add({"mov.", bits}, unary<Move, T, T>);
  table.add({"not.", bits}, unary<Not, T, T>);
  table.add({"cnot.", bits}, unary<LogicalNot, T, T>);
  table.add({"neg.", bits}, unary<Negate, T, T>);
  table.add({"abs.", bits}, unary<Absolute, T, T>);
  table.add({"add.", bits}, binary<Add, T, T, T>);
  table.add({"sub.", bits}, binary<Subtract, T, T, T>);
  table.add({"and.", bits}, binary<And, T, T, T>);
  table.add({"or.", bits}, binary<Or, T, T, T>);
  table.add({"xor.", bits}, binary<Xor, T, T, T>);
  table.add({"mul.lo.", bits}, binary<MultiplyLow, T, T, T>);
  table.add({"mad.lo.", bits}, ternary<MultiplyLow, T, T, T, T>);
  table.add({"shl.", bits}, binary<ShiftLeft, T, T, uint32_t>);
  table.add({"selp.", bits}, select<T>);
  table.add({"slct.s32.", bits}, ternary<SelectByInteger<T>, T, T, T, int32_t>);
  table.add({"slct.f32.", bits}, ternary<SelectByFloat<T>, T, T, T, float>);
}

template <typename T>
void add_signed(OpTable& table, const char* type) {
  table.add({"min.", type}, binary<Minimum, T, T, T>);
  table.add({"max.", type}, binary<Maximum, T, T, T>);
  table.add({"mul.hi.", type}, binary<MultiplyHigh, T, T, T>);
  table.add({"mad.hi.", type}, ternary<MultiplyAddHigh, T, T, T, T>);
  table.add({"div.", type}, binary<Divide, T, T, T>);
  table.add({"rem.", type}, binary<Remainder, T, T, T>);
  table.add({"shr.", type}, binary<ShiftRight, T, T, uint32_t>);
  table.add({"sad.", type}, ternary<AbsoluteDifference, T, T, T, T>);
  if constexpr (sizeof(T) < 8) {
    table.add({"mul.wide.", type}, binary<MultiplyWide, wider_t<T>, T, T>);
    table.add({"mad.wide.", type}, ternary<MultiplyWide, wider_t<T>, T, T, wider_t<T>>);
  }
}

template <typename T>
void add_24(OpTable& table, const char* type) {
  table.add({"mul24.lo.", type}, binary<Multiply24Low, T, T, T>);
  table.add({"mul24.hi.", type}, binary<Multiply24High, T, T, T>);
}

}  // namespace

void add_integer_ops(OpTable& table) {
  add_unsigned<uint16_t>(table, "16");
  add_unsigned<uint32_t>(table, "32");
  add_unsigned<uint64_t>(table, "64");
  add_signed<uint16_t>(table, "u16");
  add_signed<int16_t>(table, "s16");
  add_signed<uint32_t>(table, "u32");
  add_signed<int32_t>(table, "s32");
  add_signed<uint64_t>(table, "u64");
  add_signed<int64_t>(table, "s64");
  add_24<uint32_t>(table, "u32");
  add_24<int32_t>(table, "s32");
  table.add("mov.128", unary<Move, unsigned __int128, unsigned __int128>);
  table.add("add.sat.s32", binary<AddSaturate, int32_t, int32_t, int32_t>);
  table.add("sub.sat.s32", binary<SubtractSaturate, int32_t, int32_t, int32_t>);
  table.add("mad.hi.sat.s32", ternary<MultiplyAddHighSaturate, int32_t, int32_t, int32_t, int32_t>);
  table.add("addc.32", add_with_carry<CarryAdd, uint32_t>);
  table.add("addc.64", add_with_carry<CarryAdd, uint64_t>);
  table.add("subc.32", add_with_carry<ComplementAdd, uint32_t>);
  table.add("subc.64", add_with_carry<ComplementAdd, uint64_t>);
}

}  // namespace fargpu::sim::FARGPU_SIM_ISA

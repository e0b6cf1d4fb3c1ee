// Comparisons (setp, set). The result is a bit per lane; the boolean combination with a third
// predicate happens here.

#include "sim/exec/ops/lanes.h"
#include "sim/exec/ops/ops.h"

namespace fargpu::sim::FARGPU_SIM_ISA {
namespace {

struct Equal {
  template <typename T>
  static bool run(T a, T b) {
    return a == b;
  }
};
struct NotEqual {
  template <typename T>
  static bool run(T a, T b) {
    return a < b || b < a;
  }
};
struct Less {
  template <typename T>
  static bool run(T a, T b) {
    return a < b;
  }
};
struct LessEqual {
  template <typename T>
  static bool run(T a, T b) {
    return a <= b;
  }
};
struct Ordered {
  template <typename T>
  static bool run(T a, T b) {
    // NOLINTNEXTLINE(misc-redundant-expression): not so of a NaN
    return a == a && b == b;
  }
};

// sub: bits 0-1 the combination (0 none, 1 and, 2 or, 3 xor), bit 2 the comparison's result is
// inverted. c: the predicate to combine with. d: where the complement goes, if anywhere.
inline void finish(Exec& x, const Instr& in, uint32_t bits) {
  if ((in.sub & 4u) != 0) bits = ~bits;
  uint32_t complement = ~bits;
  if ((in.sub & 3u) != 0) {
    const uint32_t p = x.predicate(in.c, (in.flags & kInvertC) != 0);
    switch (in.sub & 3u) {
      case 1:
        bits &= p, complement &= p;
        break;
      case 2:
        bits |= p, complement |= p;
        break;
      default:
        bits ^= p, complement ^= p;
        break;
    }
  }
  x.set_predicate(in.dst, bits);
  if (in.d != kNoOperand) x.set_predicate(in.d, complement);
}

template <typename Op, typename T>
void compare(Exec& x, const Instr& in) {
  finish(x, in, compare_lanes<Op, T>(x.at<T>(in.a), x.at<T>(in.b)));
}

// Predicate to values: in.imm where it holds, 0 elsewhere (set).
template <typename T>
void materialize(Exec& x, const Instr& in) {
  T* d = x.at<T>(in.dst);
  const uint32_t p = *x.at<uint32_t>(in.a);
  alignas(64) T t[kLanes];
  FARGPU_LANES(l) t[l] = (p >> l & 1u) != 0 ? static_cast<T>(in.imm) : T{0};
  blend(d, t, x.mask);
}

template <typename T>
void add_type(OpTable& table, const char* type) {
  table.add({"cmp.eq.", type}, compare<Equal, T>);
  table.add({"cmp.lt.", type}, compare<Less, T>);
  table.add({"cmp.le.", type}, compare<LessEqual, T>);
}
template <typename T>
void add_float(OpTable& table, const char* type) {
  add_type<T>(table, type);
  table.add({"cmp.ne.", type}, compare<NotEqual, T>);
  table.add({"cmp.num.", type}, compare<Ordered, T>);
}

}  // namespace

void add_compare_ops(OpTable& table) {
  add_type<uint16_t>(table, "u16");
  add_type<int16_t>(table, "s16");
  add_type<uint32_t>(table, "u32");
  add_type<int32_t>(table, "s32");
  add_type<uint64_t>(table, "u64");
  add_type<int64_t>(table, "s64");
  add_float<float>(table, "f32");
  add_float<double>(table, "f64");
  table.add("materialize.16", materialize<uint16_t>);
  table.add("materialize.32", materialize<uint32_t>);
}

}  // namespace fargpu::sim::FARGPU_SIM_ISA

// atom, red and fences. Every operation is one atomic read-modify-write on host memory, lane after
// lane, so blocks on different cores see each other's. Not instrumented by thread sanitizer, like
// all accesses of device programs (and it knows no fences).
#include <string>
#include <type_traits>

#include "sim/exec/memory.h"
#include "sim/exec/ops/half_result.h"
#include "sim/exec/ops/ops.h"

namespace fargpu::sim {
namespace {

using ptx::Space;

template <typename T>
struct Bits {
  using type = T;
};
template <>
struct Bits<float> {
  using type = uint32_t;
};
template <>
struct Bits<double> {
  using type = uint64_t;
};
template <typename T>
using bits_t = typename Bits<T>::type;

struct Add {
  template <typename T>
  static T run(T old, T b) {
    return old + b;
  }
};
struct Minimum {
  template <typename T>
  static T run(T old, T b) {
    return b < old ? b : old;
  }
};
struct Maximum {
  template <typename T>
  static T run(T old, T b) {
    return old < b ? b : old;
  }
};
struct And {
  template <typename T>
  static T run(T old, T b) {
    return old & b;
  }
};
struct Or {
  template <typename T>
  static T run(T old, T b) {
    return old | b;
  }
};
struct Xor {
  template <typename T>
  static T run(T old, T b) {
    return old ^ b;
  }
};
struct Exchange {
  template <typename T>
  static T run(T, T b) {
    return b;
  }
};
struct Increment {
  template <typename T>
  static T run(T old, T b) {
    return old >= b ? T{0} : old + 1;
  }
};
struct Decrement {
  template <typename T>
  static T run(T old, T b) {
    return old == 0 || old > b ? b : old - 1;
  }
};
template <typename F>
struct HalfAdd {
  static uint16_t run(uint16_t a, uint16_t b) {
    return double_to_half<F>(
        static_cast<double>(half_to_float<F>(a)) + static_cast<double>(half_to_float<F>(b)),
        HalfRounding::kNearest);
  }
  static uint32_t run(uint32_t a, uint32_t b) {
    return uint32_t{run(static_cast<uint16_t>(a >> 16), static_cast<uint16_t>(b >> 16))} << 16 |
           run(static_cast<uint16_t>(a), static_cast<uint16_t>(b));
  }
};
template <typename F, bool kMax>
struct HalfExtreme {
  static uint16_t run(uint16_t a, uint16_t b) {
    const float x = half_to_float<F>(a), y = half_to_float<F>(b);
    if (x != x) return b;
    if (y != y) return a;
    return (kMax ? y > x : y < x) ? b : a;
  }
  static uint32_t run(uint32_t a, uint32_t b) {
    return uint32_t{run(static_cast<uint16_t>(a >> 16), static_cast<uint16_t>(b >> 16))} << 16 |
           run(static_cast<uint16_t>(a), static_cast<uint16_t>(b));
  }
};

uint64_t address_of(Exec& x, const Instr& in, uint32_t lane) {
  if (in.a == kNoOperand) return in.imm;
  if ((in.flags & kNarrowAddress) != 0) {
    return static_cast<uint32_t>(x.at<uint32_t>(in.a)[lane] + static_cast<uint32_t>(in.imm));
  }
  return x.at<uint64_t>(in.a)[lane] + in.imm;
}

template <typename F>
void each_place(Exec& x, const Instr& in, F visit) {
  if ((in.flags & kSpins) != 0) ++x.spins;
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((x.mask >> l & 1u) == 0) continue;
    uint8_t* place =
        resolve_lane(x, in, static_cast<Space>(in.space), address_of(x, in, l), in.size, true, l);
    if (place == nullptr) return;
    visit(l, place);
  }
}

template <typename Op, typename T>
void atomic(Exec& x, const Instr& in) {
  using B = bits_t<T>;
  const B* b = x.at<B>(in.b);
  B* d = in.dst == kNoOperand ? nullptr : x.at<B>(in.dst);
  each_place(x, in, [&](uint32_t l, uint8_t* place) {
    auto* word = reinterpret_cast<B*>(place);
    B old;
    const B operand = b[l];
    if constexpr (std::is_same_v<Op, Add> && std::is_integral_v<T>) {
      old = __atomic_fetch_add(word, operand, __ATOMIC_SEQ_CST);
    } else {
      old = __atomic_load_n(word, __ATOMIC_RELAXED);
      B next;
      do {
        next = __builtin_bit_cast(
            B, Op::run(__builtin_bit_cast(T, old), __builtin_bit_cast(T, operand)));
      } while (
          !__atomic_compare_exchange_n(word, &old, next, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
    }
    if (d != nullptr) d[l] = old;
  });
}

template <typename T>
void compare_and_swap(Exec& x, const Instr& in) {
  const T *b = x.at<T>(in.b), *c = x.at<T>(in.c);
  T* d = in.dst == kNoOperand ? nullptr : x.at<T>(in.dst);
  each_place(x, in, [&](uint32_t l, uint8_t* place) {
    T old = b[l];
    __atomic_compare_exchange_n(reinterpret_cast<T*>(place), &old, c[l], false, __ATOMIC_SEQ_CST,
                                __ATOMIC_SEQ_CST);
    if (d != nullptr) d[l] = old;
  });
}

using Wide = unsigned __int128;

// x86-64-v2 has cmpxchg16b; the __sync form is the one that compilers put in place without a
// library.
Wide swap_wide(Wide* place, Wide expected, Wide next) {
  return __sync_val_compare_and_swap(place, expected, next);
}

void compare_and_swap_wide(Exec& x, const Instr& in) {
  const Wide *b = x.at<Wide>(in.b), *c = x.at<Wide>(in.c);
  Wide* d = in.dst == kNoOperand ? nullptr : x.at<Wide>(in.dst);
  each_place(x, in, [&](uint32_t l, uint8_t* place) {
    const Wide old = swap_wide(reinterpret_cast<Wide*>(place), b[l], c[l]);
    if (d != nullptr) d[l] = old;
  });
}
void exchange_wide(Exec& x, const Instr& in) {
  const Wide* b = x.at<Wide>(in.b);
  Wide* d = in.dst == kNoOperand ? nullptr : x.at<Wide>(in.dst);
  each_place(x, in, [&](uint32_t l, uint8_t* place) {
    auto* word = reinterpret_cast<Wide*>(place);
    Wide old = 0;
    for (Wide seen = swap_wide(word, 0, 0);; old = seen) {
      old = seen;
      seen = swap_wide(word, old, b[l]);
      if (seen == old) break;
    }
    if (d != nullptr) d[l] = old;
  });
}

template <typename U, typename S>
void add_width(OpTable& table, const std::string& bits) {
  table.add("atom.add.u" + bits, atomic<Add, U>);
  table.add("atom.add.s" + bits, atomic<Add, U>);
  table.add("atom.min.u" + bits, atomic<Minimum, U>);
  table.add("atom.max.u" + bits, atomic<Maximum, U>);
  table.add("atom.min.s" + bits, atomic<Minimum, S>);
  table.add("atom.max.s" + bits, atomic<Maximum, S>);
  table.add("atom.inc.u" + bits, atomic<Increment, U>);
  table.add("atom.dec.u" + bits, atomic<Decrement, U>);
  table.add("atom.and.b" + bits, atomic<And, U>);
  table.add("atom.or.b" + bits, atomic<Or, U>);
  table.add("atom.xor.b" + bits, atomic<Xor, U>);
  for (const char* kind : {"b", "u", "s"}) {
    table.add("atom.exch." + (kind + bits), atomic<Exchange, U>);
    table.add("atom.cas." + (kind + bits), compare_and_swap<U>);
  }
}

template <typename F>
void add_half(OpTable& table, const std::string& name) {
  table.add("atom.add." + name, atomic<HalfAdd<F>, uint16_t>);
  table.add("atom.add." + name + "x2", atomic<HalfAdd<F>, uint32_t>);
  table.add("atom.min." + name, atomic<HalfExtreme<F, false>, uint16_t>);
  table.add("atom.max." + name, atomic<HalfExtreme<F, true>, uint16_t>);
  table.add("atom.min." + name + "x2", atomic<HalfExtreme<F, false>, uint32_t>);
  table.add("atom.max." + name + "x2", atomic<HalfExtreme<F, true>, uint32_t>);
}

void fence(Exec& x, const Instr& in) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

}  // namespace

void add_atomic_ops(OpTable& table) {
  add_width<uint32_t, int32_t>(table, "32");
  add_width<uint64_t, int64_t>(table, "64");
  table.add("atom.add.f32", atomic<Add, float>);
  table.add("atom.add.f64", atomic<Add, double>);
  add_half<F16>(table, "f16");
  add_half<Bf16>(table, "bf16");
  table.add("atom.cas.b16", compare_and_swap<uint16_t>);
  table.add("atom.cas.b128", compare_and_swap_wide);
  table.add("atom.exch.b128", exchange_wide);
  table.add("fence", fence);
}

}  // namespace fargpu::sim

// Predicate logic, register packing, addresses of local variables, clocks.
#include <chrono>
#include <cstring>

#include "sim/exec/ops/ops.h"
#include "sim/exec/ops/scheduler.h"
#include "sim/exec/program_code.h"

namespace fargpu::sim {
namespace {

template <typename F>
void predicate_op(Exec& x, const Instr& in, F op) {
  const uint32_t a = x.predicate(in.a, (in.flags & kInvertA) != 0);
  const uint32_t b = in.b == kNoOperand ? 0 : x.predicate(in.b, (in.flags & kInvertB) != 0);
  x.set_predicate(in.dst, op(a, b));
}
void pred_mov(Exec& x, const Instr& in) {
  predicate_op(x, in, [](uint32_t a, uint32_t) { return a; });
}
void pred_not(Exec& x, const Instr& in) {
  predicate_op(x, in, [](uint32_t a, uint32_t) { return ~a; });
}
void pred_and(Exec& x, const Instr& in) {
  predicate_op(x, in, [](uint32_t a, uint32_t b) { return a & b; });
}
void pred_or(Exec& x, const Instr& in) {
  predicate_op(x, in, [](uint32_t a, uint32_t b) { return a | b; });
}
void pred_xor(Exec& x, const Instr& in) {
  predicate_op(x, in, [](uint32_t a, uint32_t b) { return a ^ b; });
}

// Parts of in.size bytes to one value of in.size * in.count bytes, lowest first.
void pack(Exec& x, const Instr& in) {
  const OperandRef* parts = operand_list(x, in);
  const size_t whole = size_t{in.size} * in.count;
  uint8_t* d = x.at<uint8_t>(in.dst);
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((x.mask >> l & 1u) == 0) continue;
    uint8_t value[16];
    for (uint32_t e = 0; e < in.count; ++e) {
      std::memcpy(value + size_t{e} * in.size, x.at<uint8_t>(parts[e]) + size_t{l} * in.size,
                  in.size);
    }
    std::memcpy(d + l * whole, value, whole);
  }
}

void unpack(Exec& x, const Instr& in) {
  const OperandRef* parts = operand_list(x, in);
  const size_t whole = size_t{in.size} * in.count;
  const uint8_t* a = x.at<uint8_t>(in.a);
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((x.mask >> l & 1u) == 0) continue;
    uint8_t value[16];
    std::memcpy(value, a + l * whole, whole);
    for (uint32_t e = 0; e < in.count; ++e) {
      if (parts[e] == kNoOperand) continue;
      std::memcpy(x.at<uint8_t>(parts[e]) + size_t{l} * in.size, value + size_t{e} * in.size,
                  in.size);
    }
  }
}

template <typename T>
void write_all(Exec& x, const Instr& in, T value) {
  T* d = x.at<T>(in.dst);
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((x.mask >> l & 1u) != 0) d[l] = value;
  }
}

template <typename T>
void local_address(Exec& x, const Instr& in) {
  write_all<T>(x, in, static_cast<T>(x.path.local + in.imm));
}

uint64_t nanoseconds(bool wall) {
  using std::chrono::duration_cast;
  using std::chrono::nanoseconds;
  return static_cast<uint64_t>(
      wall ? duration_cast<nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count()
           : duration_cast<nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
                 .count());
}

// A clock of one tick per nanosecond. Loops that wait for it count as spinning.
template <typename T, bool kWall, unsigned kShift>
void clock(Exec& x, const Instr& in) {
  ++x.spins;
  write_all<T>(x, in, static_cast<T>(nanoseconds(kWall) >> kShift));
}

void nanosleep(Exec& x, const Instr& in) {
  // Time passes anyway; what counts is that others run.
  x.event = Event::kYield;
  x.spins = kSpinLimit;
}

// Bytes in 16-bit registers, to and from one value.
void pack_bytes(Exec& x, const Instr& in) {
  const OperandRef* parts = operand_list(x, in);
  uint8_t* d = x.at<uint8_t>(in.dst);
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((x.mask >> l & 1u) == 0) continue;
    uint8_t value[8];
    for (uint32_t e = 0; e < in.count; ++e)
      value[e] = static_cast<uint8_t>(x.at<uint16_t>(parts[e])[l]);
    std::memcpy(d + size_t{l} * in.count, value, in.count);
  }
}
void unpack_bytes(Exec& x, const Instr& in) {
  const OperandRef* parts = operand_list(x, in);
  const uint8_t* a = x.at<uint8_t>(in.a);
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((x.mask >> l & 1u) == 0) continue;
    uint8_t value[8];
    std::memcpy(value, a + size_t{l} * in.count, in.count);
    for (uint32_t e = 0; e < in.count; ++e) x.at<uint16_t>(parts[e])[l] = value[e];
  }
}

// imm: the window, 0 for global memory. sub 1: constants, which share the addresses of global
// memory and are never distinguished.
void is_space(Exec& x, const Instr& in) {
  const uint64_t* a = x.at<uint64_t>(in.a);
  uint32_t bits = 0;
  for (uint32_t l = 0; l < kLanes; ++l) {
    const uint64_t window = a[l] & ~(kWindowBytes - 1);
    const bool global = window != kSharedWindow && window != kLocalWindow && window != kParamWindow;
    const bool own = in.sub != 2 || a[l] - window < kClusterStride;
    const bool inside = in.sub == 1 ? false : in.imm == 0 ? global : window == in.imm && own;
    bits |= (inside ? 1u : 0u) << l;
  }
  x.set_predicate(in.dst, bits);
}

void nop(Exec& x, const Instr& in) {}

}  // namespace

void add_special_ops(OpTable& table) {
  table.add("mov.pred", pred_mov);
  table.add("not.pred", pred_not);
  table.add("and.pred", pred_and);
  table.add("or.pred", pred_or);
  table.add("xor.pred", pred_xor);
  table.add("pack", pack);
  table.add("unpack", unpack);
  table.add("pack.8", pack_bytes);
  table.add("unpack.8", unpack_bytes);
  table.add("isspacep", is_space);
  table.add("local.address.32", local_address<uint32_t>);
  table.add("local.address.64", local_address<uint64_t>);
  table.add("clock.32", clock<uint32_t, false, 0>);
  table.add("clock.hi.32", clock<uint32_t, false, 32>);
  table.add("clock.64", clock<uint64_t, false, 0>);
  table.add("globaltimer.64", clock<uint64_t, true, 0>);
  table.add("globaltimer.32", clock<uint32_t, true, 0>);
  table.add("globaltimer.hi.32", clock<uint32_t, true, 32>);
  table.add("nanosleep", nanosleep);
  table.add("nop", nop);
}

}  // namespace fargpu::sim

// Templates for handlers that compute each lane from the same lane of their operands. Included by
// the files that are compiled once per host instruction set (FARGPU_SIM_ISA names the namespace);
// everything is inline in that namespace, so that no function compiled for a newer instruction set
// can be chosen by the linker for an older machine. An operation is a type with a static run(); it
// must be total, because inactive lanes are computed too (and then thrown away).
#pragma once

#include <xmmintrin.h>

#include <cstdint>

#include "sim/exec/instr.h"
#include "sim/exec/machine.h"

#ifndef FARGPU_SIM_ISA
#error "FARGPU_SIM_ISA must name the instruction set's namespace"
#endif

namespace fargpu::sim::FARGPU_SIM_ISA {

// GCC and clang spell "these lanes do not depend on each other" differently.
#if defined(__clang__)
#define FARGPU_LANES(l) \
  _Pragma("clang loop vectorize(assume_safety)") for (uint32_t l = 0; l < kLanes; ++l)
#else
#define FARGPU_LANES(l) _Pragma("GCC ivdep") for (uint32_t l = 0; l < kLanes; ++l)
#endif

// Sets rounding and denormal handling for a handler. The memory clobber keeps the arithmetic, whose
// operands and results are in memory, between the two writes of the control register.
class FloatScope {
 public:
  explicit FloatScope(uint16_t control) : control_(control) {
    if (control_ != 0) set(0x1f80u | control_);
  }
  ~FloatScope() {
    if (control_ != 0) set(0x1f80u);
  }
  FloatScope(const FloatScope&) = delete;
  FloatScope& operator=(const FloatScope&) = delete;

 private:
  static void set(uint32_t value) { asm volatile("ldmxcsr %0" : : "m"(value) : "memory"); }
  uint16_t control_;
};

template <typename T>
inline void blend(T* out, const T* values, uint32_t mask) {
  FARGPU_LANES(l) out[l] = (mask >> l & 1u) != 0 ? values[l] : out[l];
}

template <typename Op, typename D, typename A>
void unary(Exec& x, const Instr& in) {
  D* d = x.at<D>(in.dst);
  const A* a = x.at<A>(in.a);
  const FloatScope scope(in.float_control);
  if (x.mask == kAllLanes) {
    FARGPU_LANES(l) d[l] = Op::run(a[l]);
  } else {
    alignas(64) D t[kLanes];
    FARGPU_LANES(l) t[l] = Op::run(a[l]);
    blend(d, t, x.mask);
  }
}

template <typename Op, typename D, typename A, typename B>
void binary(Exec& x, const Instr& in) {
  D* d = x.at<D>(in.dst);
  const A* a = x.at<A>(in.a);
  const B* b = x.at<B>(in.b);
  const FloatScope scope(in.float_control);
  if (x.mask == kAllLanes) {
    FARGPU_LANES(l) d[l] = Op::run(a[l], b[l]);
  } else {
    alignas(64) D t[kLanes];
    FARGPU_LANES(l) t[l] = Op::run(a[l], b[l]);
    blend(d, t, x.mask);
  }
}

template <typename Op, typename D, typename A, typename B, typename C>
void ternary(Exec& x, const Instr& in) {
  D* d = x.at<D>(in.dst);
  const A* a = x.at<A>(in.a);
  const B* b = x.at<B>(in.b);
  const C* c = x.at<C>(in.c);
  const FloatScope scope(in.float_control);
  if (x.mask == kAllLanes) {
    FARGPU_LANES(l) d[l] = Op::run(a[l], b[l], c[l]);
  } else {
    alignas(64) D t[kLanes];
    FARGPU_LANES(l) t[l] = Op::run(a[l], b[l], c[l]);
    blend(d, t, x.mask);
  }
}

// d = op(a, b, c, d operand): four sources.
template <typename Op, typename D, typename A, typename B, typename C, typename E>
void quaternary(Exec& x, const Instr& in) {
  D* d = x.at<D>(in.dst);
  const A* a = x.at<A>(in.a);
  const B* b = x.at<B>(in.b);
  const C* c = x.at<C>(in.c);
  const E* e = x.at<E>(in.d);
  alignas(64) D t[kLanes];
  for (uint32_t l = 0; l < kLanes; ++l) t[l] = Op::run(a[l], b[l], c[l], e[l]);
  blend(d, t, x.mask);
}

// The same with the handler's immediate as last argument.
template <typename Op, typename D, typename A, typename B>
void binary_imm(Exec& x, const Instr& in) {
  D* d = x.at<D>(in.dst);
  const A* a = x.at<A>(in.a);
  const B* b = x.at<B>(in.b);
  alignas(64) D t[kLanes];
  FARGPU_LANES(l) t[l] = Op::run(a[l], b[l], in.imm);
  blend(d, t, x.mask);
}

template <typename Op, typename D, typename A, typename B, typename C>
void ternary_imm(Exec& x, const Instr& in) {
  D* d = x.at<D>(in.dst);
  const A* a = x.at<A>(in.a);
  const B* b = x.at<B>(in.b);
  const C* c = x.at<C>(in.c);
  alignas(64) D t[kLanes];
  FARGPU_LANES(l) t[l] = Op::run(a[l], b[l], c[l], in.imm);
  blend(d, t, x.mask);
}

// A bit per lane for which the comparison holds.
template <typename Op, typename T>
inline uint32_t compare_lanes(const T* a, const T* b) {
  uint32_t bits = 0;
  for (uint32_t l = 0; l < kLanes; ++l) bits |= Op::run(a[l], b[l]) ? 1u << l : 0u;
  return bits;
}

}  // namespace fargpu::sim::FARGPU_SIM_ISA

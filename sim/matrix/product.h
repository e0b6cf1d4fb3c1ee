// D = A * B + C of fragments. Products of floating point have no rounding between them: the sum is
// made in double and rounded once, within the precision of the PTX ISA. With f64 each step is a
// fused multiply-add, in the order of K. Pure.
#pragma once

#include "sim/matrix/fragment.h"

namespace fargpu::sim {

// kXor and kAnd of single bits: the number of ones in what A's row and B's column give.
enum class BitLogic : uint8_t { kNone, kXor, kAnd };

struct Product {
  Fragment a{}, b{}, c{}, d{};
  BitLogic logic = BitLogic::kNone;
  bool saturate = false;  // of s32: clamped instead of wrapped
};

// Registers of d may be some of the others'.
void multiply(const Product& product, Columns a, Columns b, Columns c, Columns d);

}  // namespace fargpu::sim

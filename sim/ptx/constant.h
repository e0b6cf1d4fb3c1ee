// A constant of an operand or initialiser.
#pragma once

#include <cstdint>

#include "sim/ptx/types.h"

namespace fargpu::sim::ptx {

struct Constant {
  enum class Kind : uint8_t { kInteger, kFloat, kSingle } kind = Kind::kInteger;
  uint64_t value = 0;  // integer, or float bits (kFloat: of a double, kSingle: of a float)
  bool is_unsigned = false;
};

// The bits of `constant` as a value of `type`. False when it does not fit the kind of type.
bool constant_bits(const Constant& constant, Type type, uint64_t& bits);

}  // namespace fargpu::sim::ptx

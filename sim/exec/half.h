// Modifiers of f16 and bf16 operations as they travel in Instr::imm.
#pragma once

#include <cstdint>

namespace fargpu::sim {

inline constexpr uint64_t kHalfFlush = 1;     // .ftz
inline constexpr uint64_t kHalfSaturate = 2;  // .sat
inline constexpr uint64_t kHalfRelu = 4;
inline constexpr uint64_t kHalfNan = 8;       // .NaN of min and max
inline constexpr uint64_t kHalfXorSign = 16;  // .xorsign.abs of min and max
inline constexpr uint64_t kHalfFinite = 32;   // .satfinite

}  // namespace fargpu::sim

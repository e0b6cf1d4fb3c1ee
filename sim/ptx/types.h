// Scalar types and state spaces of PTX. Plain values; everything here is pure.
#pragma once

#include <cstdint>
#include <string_view>

namespace fargpu::sim::ptx {

enum class Type : uint8_t {
  kNone,
  kPred,
  kB8,
  kB16,
  kB32,
  kB64,
  kB128,
  kU8,
  kU16,
  kU32,
  kU64,
  kS8,
  kS16,
  kS32,
  kS64,
  kU16x2,
  kS16x2,
  kF16,
  kF16x2,
  kBf16,
  kBf16x2,
  kTf32,
  kF32,
  kF32x2,
  kF64,
  kE4m3x2,
  kE5m2x2,
  kOpaque,  // .texref, .samplerref, .surfref
};

enum class Space : uint8_t { kGeneric, kReg, kParam, kLocal, kShared, kGlobal, kConst };

// The type named by `name` without its dot ("u32"), kNone when there is no such type.
Type type_from_name(std::string_view name);
std::string_view type_name(Type type);
// Bytes of one value in memory; 1 for predicates, 8 for opaque handles, 0 for kNone.
unsigned type_bytes(Type type);
// Bytes of one lane of a register of this type: 8-bit values live in 16-bit registers.
unsigned register_bytes(Type type);

bool is_signed(Type type);   // s8 .. s64
bool is_float(Type type);    // f16, bf16, tf32, f32, f64 and the packed ones
bool is_integer(Type type);  // u8 .. u64, s8 .. s64
bool is_bits(Type type);     // b8 .. b128

}  // namespace fargpu::sim::ptx

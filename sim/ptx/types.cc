#include "sim/ptx/types.h"

#include <array>

namespace fargpu::sim::ptx {
namespace {

struct Row {
  std::string_view name;
  Type type;
  unsigned bytes;
};

constexpr std::array kRows = {
    Row{"none", Type::kNone, 0},     Row{"pred", Type::kPred, 1},
    Row{"b8", Type::kB8, 1},         Row{"b16", Type::kB16, 2},
    Row{"b32", Type::kB32, 4},       Row{"b64", Type::kB64, 8},
    Row{"b128", Type::kB128, 16},    Row{"u8", Type::kU8, 1},
    Row{"u16", Type::kU16, 2},       Row{"u32", Type::kU32, 4},
    Row{"u64", Type::kU64, 8},       Row{"s8", Type::kS8, 1},
    Row{"s16", Type::kS16, 2},       Row{"s32", Type::kS32, 4},
    Row{"s64", Type::kS64, 8},       Row{"u16x2", Type::kU16x2, 4},
    Row{"s16x2", Type::kS16x2, 4},   Row{"f16", Type::kF16, 2},
    Row{"f16x2", Type::kF16x2, 4},   Row{"bf16", Type::kBf16, 2},
    Row{"bf16x2", Type::kBf16x2, 4}, Row{"tf32", Type::kTf32, 4},
    Row{"f32", Type::kF32, 4},       Row{"f32x2", Type::kF32x2, 8},
    Row{"f64", Type::kF64, 8},       Row{"e4m3x2", Type::kE4m3x2, 2},
    Row{"e5m2x2", Type::kE5m2x2, 2}, Row{"texref", Type::kOpaque, 8},
};

const Row& row(Type type) {
  const auto index = static_cast<size_t>(type);
  return kRows[index < kRows.size() ? index : 0];
}

}  // namespace

Type type_from_name(std::string_view name) {
  if (name == "samplerref" || name == "surfref") return Type::kOpaque;
  for (const Row& r : kRows) {
    if (r.type != Type::kNone && r.name == name) return r.type;
  }
  return Type::kNone;
}

std::string_view type_name(Type type) { return row(type).name; }
unsigned type_bytes(Type type) { return row(type).bytes; }

unsigned register_bytes(Type type) {
  const unsigned bytes = type_bytes(type);
  return bytes == 1 && type != Type::kPred ? 2 : bytes;
}

bool is_signed(Type type) { return type >= Type::kS8 && type <= Type::kS64; }
bool is_float(Type type) { return type >= Type::kF16 && type <= Type::kE5m2x2; }
bool is_integer(Type type) { return type >= Type::kU8 && type <= Type::kS64; }
bool is_bits(Type type) { return type >= Type::kB8 && type <= Type::kB128; }

}  // namespace fargpu::sim::ptx

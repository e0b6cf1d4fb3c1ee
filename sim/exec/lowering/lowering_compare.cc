// setp and set.
#include <fmt/core.h>

#include "sim/exec/lowering/lowering.h"

namespace fargpu::sim {
namespace {

using ptx::Type;

constexpr std::string_view kComparisons =
    "eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan";

bool is_half(Type type) { return type == Type::kF16 || type == Type::kBf16; }
bool is_half_pair(Type type) { return type == Type::kF16x2 || type == Type::kBf16x2; }
Type element_of(Type pair) { return pair == Type::kF16x2 ? Type::kF16 : Type::kBf16; }

// Which comparisons a type has: equality of bits, order of integers, everything of floats.
bool has_comparison(std::string_view comparison, Type type) {
  if (comparison.empty()) return false;
  const bool equality = comparison == "eq" || comparison == "ne";
  if (ptx::is_bits(type)) return equality && ptx::type_bytes(type) >= 2 && type != Type::kB128;
  const bool unsigned_order =
      comparison == "lo" || comparison == "ls" || comparison == "hi" || comparison == "hs";
  if (ptx::is_integer(type) && ptx::type_bytes(type) >= 2) {
    return equality || comparison == "lt" || comparison == "le" || comparison == "gt" ||
           comparison == "ge" || (!ptx::is_signed(type) && unsigned_order);
  }
  return (type == Type::kF32 || type == Type::kF64 || is_half(type)) && !unsigned_order;
}

// What stands for true in a result of set, 0 when there is no such type.
uint64_t true_value(Type type) {
  switch (type) {
    case Type::kU32:
    case Type::kS32:
      return 0xffffffffu;
    case Type::kF32:
      return 0x3f800000u;
    case Type::kU16:
    case Type::kS16:
      return 0xffffu;
    case Type::kF16:
      return 0x3c00u;
    case Type::kBf16:
      return 0x3f80u;
    default:
      return 0;
  }
}

}  // namespace

bool Lowering::take_comparison(Modifiers& mods, Comparison& how) {
  how.comparison = mods.take_one(kComparisons);
  how.combine = mods.take_one("and or xor");
  how.ftz = mods.take("ftz");
  return !how.comparison.empty();
}

// Reads the predicate of the combination, if there is one.
void Lowering::take_combination(Comparison& how) {
  const size_t count = how.combine.empty() ? 3 : 4;
  expect_operands(count, count);
  if (!how.combine.empty()) how.c = source_predicate(operand(3), how.inverted);
}

// p = a <comparison> b, combined; q (if there) the same of the opposite.
void Lowering::emit_comparison(const Comparison& how, Type type, OperandRef a, OperandRef b,
                               OperandRef p, OperandRef q) {
  if (is_half(type)) {
    const OperandRef wide_a = temp(4), wide_b = temp(4);
    emit(fmt::format("cvt.f32.{}", ptx::type_name(type)), wide_a, a).imm = how.ftz ? kHalfFlush : 0;
    emit(fmt::format("cvt.f32.{}", ptx::type_name(type)), wide_b, b).imm = how.ftz ? kHalfFlush : 0;
    a = wide_a;
    b = wide_b;
    type = Type::kF32;
  } else {
    a = flushed(a, type, how.ftz);
    b = flushed(b, type, how.ftz);
  }
  bool invert = false, swap = false;
  std::string_view base = how.comparison;
  std::string_view kind = ptx::type_name(type);
  if (ptx::is_float(type)) {
    // The unordered comparisons are the opposites of the ordered ones.
    if (base == "equ")
      base = "ne", invert = true;
    else if (base == "neu")
      base = "eq", invert = true;
    else if (base == "ltu")
      base = "le", invert = true, swap = true;
    else if (base == "leu")
      base = "lt", invert = true, swap = true;
    else if (base == "gtu")
      base = "le", invert = true;
    else if (base == "geu")
      base = "lt", invert = true;
    else if (base == "nan")
      base = "num", invert = true;
    else if (base == "gt")
      base = "lt", swap = true;
    else if (base == "ge")
      base = "le", swap = true;
  } else {
    if (base == "ne")
      base = "eq", invert = true;
    else if (base == "lo")
      base = "lt";
    else if (base == "ls")
      base = "le";
    else if (base == "gt" || base == "hi")
      base = "lt", swap = true;
    else if (base == "ge" || base == "hs")
      base = "le", swap = true;
    const bool is_signed = ptx::is_signed(type);
    const unsigned bytes = ptx::type_bytes(type);
    kind = bytes == 2   ? (is_signed ? "s16" : "u16")
           : bytes == 4 ? (is_signed ? "s32" : "u32")
                        : (is_signed ? "s64" : "u64");
  }
  Instr& in = emit(fmt::format("cmp.{}.{}", base, kind), p, swap ? b : a, swap ? a : b, how.c);
  in.d = q;
  set_predicate_flag(in, how.inverted, kInvertC);
  const int combine = how.combine == "and"   ? 1
                      : how.combine == "or"  ? 2
                      : how.combine == "xor" ? 3
                                             : 0;
  in.sub = static_cast<uint8_t>(combine | (invert ? 4 : 0));
}

OperandRef Lowering::half_of(OperandRef pair, unsigned which) {
  const OperandRef part = temp(2);
  emit("half.part", part, pair).imm = which;
  return part;
}

void Lowering::lower_setp(Modifiers& mods) {
  Comparison how;
  take_comparison(mods, how);
  const Type type = mods.take_type();
  done(mods);
  const Type element = is_half_pair(type) ? element_of(type) : type;
  if (!has_comparison(how.comparison, element)) return refuse("no such comparison");
  take_combination(how);
  const OperandRef a = source(1, type), b = source(2, type);
  const OperandRef p = destination_predicate(operand(0));
  const bool two = operand(0).pair != nullptr;
  const OperandRef q = two ? destination_predicate(*operand(0).pair) : kNoOperand;
  if (!is_half_pair(type)) return emit_comparison(how, type, a, b, p, q);
  // A pair gives one predicate for the low and one for the high halves. The first result must not
  // be read as the second's combination, so it waits in a temporary.
  const OperandRef low = temp_predicate(), high = two ? q : temp_predicate();
  emit_comparison(how, element, half_of(a, 0), half_of(b, 0), low, kNoOperand);
  emit_comparison(how, element, half_of(a, 1), half_of(b, 1), high, kNoOperand);
  emit("mov.pred", p, low);
}

// Like setp, with 0 and all ones (integers) or 1.0 (floats) as results.
void Lowering::lower_set(Modifiers& mods) {
  Comparison how;
  take_comparison(mods, how);
  const Type to = mods.take_type(), type = mods.take_type();
  done(mods);
  const bool pair = is_half_pair(type);
  const Type element = pair ? element_of(type) : type;
  if (!has_comparison(how.comparison, element)) return refuse("no such comparison");
  // A pair compared as integers gives a mask of 16 bits for each half.
  const bool masks = pair && (to == Type::kU32 || to == Type::kS32);
  const uint64_t yes = masks ? 0xffff : true_value(pair && to == type ? element : to);
  if (yes == 0 || (pair && !masks && to != type)) return refuse("no such type");
  take_combination(how);
  const OperandRef a = source(1, type), b = source(2, type), p = temp_predicate();
  const OperandRef d = destination(0, to);
  if (!pair) {
    emit_comparison(how, type, a, b, p, kNoOperand);
    emit(fmt::format("materialize.{}", ptx::register_bytes(to) * 8), d, p).imm = yes;
    return;
  }
  const OperandRef low = temp(4), high = temp(4);
  for (const unsigned which : {0u, 1u}) {
    emit_comparison(how, element, half_of(a, which), half_of(b, which), p, kNoOperand);
    emit("materialize.32", which == 0 ? low : high, p).imm = yes << 16 * which;
  }
  emit("or.32", d, low, high);
}

}  // namespace fargpu::sim

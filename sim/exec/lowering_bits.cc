// Logic, shifts, bit fields, comparison and selection.
#include <fmt/format.h>

#include "sim/exec/lowering.h"

namespace fargpu::sim {
namespace {

using ptx::Type;

bool is_half(Type type) { return type == Type::kF16 || type == Type::kBf16; }
std::string key(std::string_view op, Type type) { return fmt::format("{}.{}", op, ptx::type_name(type)); }
std::string width_key(std::string_view op, Type type) {
  return fmt::format("{}.{}", op, ptx::register_bytes(type) * 8);
}
bool is_word(Type type) { return ptx::is_bits(type) && ptx::type_bytes(type) >= 2 && type != Type::kB128; }

}  // namespace

void Lowering::lower_logic(Modifiers& mods) {
  const std::string_view op = current_->opcode;
  const Type type = mods.take_type();
  done(mods);
  expect_operands(3, 3);
  if (type == Type::kPred) {
    bool invert_a = false, invert_b = false;
    const OperandRef a = source_predicate(operand(1), invert_a), b = source_predicate(operand(2), invert_b);
    Instr& in = emit(fmt::format("{}.pred", op), destination_predicate(operand(0)), a, b);
    set_predicate_flag(in, invert_a, kInvertA);
    set_predicate_flag(in, invert_b, kInvertB);
    return;
  }
  if (!is_word(type)) return refuse("no such type");
  const OperandRef a = source(1, type), b = source(2, type);
  emit(width_key(op, type), destination(0, type), a, b);
}

// not, cnot.
void Lowering::lower_not(Modifiers& mods) {
  const Type type = mods.take_type();
  done(mods);
  expect_operands(2, 2);
  if (type == Type::kPred && current_->opcode == "not") {
    bool invert = false;
    const OperandRef a = source_predicate(operand(1), invert);
    set_predicate_flag(emit("not.pred", destination_predicate(operand(0)), a), invert, kInvertA);
    return;
  }
  if (!is_word(type)) return refuse("no such type");
  emit(width_key(current_->opcode, type), destination(0, type), source(1, type));
}

void Lowering::lower_shift(Modifiers& mods) {
  const bool left = current_->opcode == "shl";
  const Type type = mods.take_type();
  done(mods);
  if ((left && !is_word(type)) || (!left && !is_word(type) && !(ptx::is_integer(type) && ptx::type_bytes(type) > 1))) {
    return refuse("no such type");
  }
  expect_operands(3, 3);
  const OperandRef a = source(1, type), b = source(2, Type::kU32);
  const char* kind = ptx::is_signed(type) ? "s" : "u";
  emit(left ? width_key("shl", type) : fmt::format("shr.{}{}", kind, ptx::type_bytes(type) * 8),
       destination(0, type), a, b);
}

void Lowering::lower_shf(Modifiers& mods) {
  const std::string_view direction = mods.take_one("l r"), mode = mods.take_one("clamp wrap");
  const Type type = mods.take_type();
  done(mods);
  if (direction.empty() || mode.empty() || type != Type::kB32) return refuse("no such variant");
  expect_operands(4, 4);
  const OperandRef a = source(1, type), b = source(2, type), c = source(3, type);
  emit(fmt::format("shf.{}.{}", direction, mode), destination(0, type), a, b, c);
}

void Lowering::lower_lop3(Modifiers& mods) {
  const std::string_view combine = mods.take_one("or and");
  const Type type = mods.take_type();
  done(mods);
  if (type != Type::kB32) return refuse("no such type");
  const bool dual = !combine.empty();
  expect_operands(dual ? 6 : 5, dual ? 6 : 5);
  const OperandRef a = source(1, type), b = source(2, type), c = source(3, type);
  const std::optional<uint64_t> table = dry_ ? std::optional<uint64_t>{0} : constant_of(operand(4));
  if (!table || *table > 255) return fail("the table is not a constant below 256");
  const OperandRef d = destination(0, type);
  emit("lop3", d, a, b, c).imm = *table;
  if (!dual) return;
  bool inverted = false;
  const OperandRef q = source_predicate(operand(5), inverted);
  static const Operand none = [] {
    Operand sink;
    sink.kind = Operand::Kind::kSink;
    return sink;
  }();
  const Operand& pair = operand(0).pair ? *operand(0).pair : none;
  Instr& in = emit("lop3.pred", destination_predicate(pair), d, kNoOperand, q);
  in.sub = combine == "and" ? 1 : 2;
  set_predicate_flag(in, inverted, kInvertC);
}

// popc, clz, brev.
void Lowering::lower_count(Modifiers& mods) {
  const Type type = mods.take_type();
  done(mods);
  if (!is_word(type) || type == Type::kB16) return refuse("no such type");
  expect_operands(2, 2);
  const OperandRef a = source(1, type);
  emit(width_key(current_->opcode, type), destination(0, current_->opcode == "brev" ? type : Type::kU32), a);
}

void Lowering::lower_bfind(Modifiers& mods) {
  const bool shift = mods.take("shiftamt");
  const Type type = mods.take_type();
  done(mods);
  if (!ptx::is_integer(type)) return refuse("no such type");
  expect_operands(2, 2);
  const OperandRef a = source(1, type);
  emit(key(shift ? "bfind.shiftamt" : "bfind", type), destination(0, Type::kU32), a);
}

void Lowering::lower_bfe(Modifiers& mods) {
  const Type type = mods.take_type();
  done(mods);
  if (!ptx::is_integer(type)) return refuse("no such type");
  expect_operands(4, 4);
  const OperandRef a = source(1, type), b = source(2, Type::kU32), c = source(3, Type::kU32);
  emit(key("bfe", type), destination(0, type), a, b, c);
}

void Lowering::lower_bfi(Modifiers& mods) {
  const Type type = mods.take_type();
  done(mods);
  if (!is_word(type)) return refuse("no such type");
  expect_operands(5, 5);
  const OperandRef a = source(1, type), b = source(2, type), c = source(3, Type::kU32), d = source(4, Type::kU32);
  emit(width_key("bfi", type), destination(0, type), a, b, c).d = d;
}

void Lowering::lower_bmsk(Modifiers& mods) {
  const std::string_view mode = mods.take_one("clamp wrap");
  const Type type = mods.take_type();
  done(mods);
  if (mode.empty() || type != Type::kB32) return refuse("no such variant");
  expect_operands(3, 3);
  const OperandRef a = source(1, type), b = source(2, type);
  emit(fmt::format("bmsk.{}", mode), destination(0, type), a, b);
}

void Lowering::lower_szext(Modifiers& mods) {
  const std::string_view mode = mods.take_one("clamp wrap");
  const Type type = mods.take_type();
  done(mods);
  if (mode.empty() || (type != Type::kU32 && type != Type::kS32)) return refuse("no such variant");
  expect_operands(3, 3);
  const OperandRef a = source(1, type), b = source(2, Type::kU32);
  emit(key(fmt::format("szext.{}", mode), type), destination(0, type), a, b);
}

void Lowering::lower_fns(Modifiers& mods) {
  const Type type = mods.take_type();
  done(mods);
  if (type != Type::kB32) return refuse("no such type");
  expect_operands(4, 4);
  const OperandRef a = source(1, type), b = source(2, type), c = source(3, type);
  emit("fns.32", destination(0, type), a, b, c);
}

void Lowering::lower_prmt(Modifiers& mods) {
  const Type type = mods.take_type();
  const std::string_view mode = mods.take_one("f4e b4e rc8 ecl ecr rc16");
  done(mods);
  if (type != Type::kB32) return refuse("no such type");
  expect_operands(4, 4);
  const OperandRef a = source(1, type), b = source(2, type), c = source(3, type);
  const std::string_view modes[] = {"", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16"};
  Instr& in = emit("prmt", destination(0, type), a, b, c);
  for (uint64_t i = 0; i < std::size(modes); ++i) {
    if (modes[i] == mode) in.imm = i;
  }
}

// Emits the comparison and says which instruction it became; the caller fills in dst, d, c and the combination.
void Lowering::compare(std::string_view comparison, Type type, OperandRef a, OperandRef b, Instr*& in) {
  bool invert = false, swap = false;
  std::string_view base = comparison;
  const bool is_float = ptx::is_float(type);
  std::string_view kind = ptx::type_name(type);
  if (!is_float) {
    if (comparison == "lo") base = "lt";
    if (comparison == "ls") base = "le";
    if (comparison == "hi") base = "gt";
    if (comparison == "hs") base = "ge";
    if (base == "ne") base = "eq", invert = true;
    if (base == "gt") base = "lt", swap = true;
    if (base == "ge") base = "le", swap = true;
    const bool is_signed = ptx::is_signed(type);
    const unsigned bytes = ptx::type_bytes(type);
    kind = bytes == 2 ? (is_signed ? "s16" : "u16") : bytes == 4 ? (is_signed ? "s32" : "u32") : is_signed ? "s64" : "u64";
  } else {
    // The unordered comparisons are the opposites of the ordered ones.
    if (base == "equ") base = "ne", invert = true;
    else if (base == "neu") base = "eq", invert = true;
    else if (base == "ltu") base = "le", invert = true, swap = true;
    else if (base == "leu") base = "lt", invert = true, swap = true;
    else if (base == "gtu") base = "le", invert = true;
    else if (base == "geu") base = "lt", invert = true;
    else if (base == "nan") base = "num", invert = true;
    else if (base == "gt") base = "lt", swap = true;
    else if (base == "ge") base = "le", swap = true;
  }
  in = &emit(fmt::format("cmp.{}.{}", base, kind));
  in->a = swap ? b : a;
  in->b = swap ? a : b;
  in->sub = invert ? 4 : 0;
}

namespace {
constexpr std::string_view kComparisons =
    "eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan";

// Which comparisons a type has: equality of bits, order of integers, everything of floats.
bool has_comparison(std::string_view comparison, Type type) {
  constexpr std::string_view kUnordered = " lo ls hi hs ";
  const std::string word = fmt::format(" {} ", comparison);
  if (comparison.empty()) return false;
  const bool equality = comparison == "eq" || comparison == "ne";
  if (ptx::is_bits(type)) return equality && ptx::type_bytes(type) >= 2 && type != Type::kB128;
  const bool ordered = equality || comparison == "lt" || comparison == "le" || comparison == "gt" || comparison == "ge";
  if (ptx::is_integer(type) && ptx::type_bytes(type) >= 2) {
    return ordered || (!ptx::is_signed(type) && kUnordered.find(word) != std::string_view::npos);
  }
  if (type == Type::kF32 || type == Type::kF64 || is_half(type)) {
    return kUnordered.find(word) == std::string_view::npos;
  }
  return false;
}
}  // namespace

void Lowering::lower_setp(Modifiers& mods) {
  const std::string_view comparison = mods.take_one(kComparisons);
  const std::string_view combine = mods.take_one("and or xor");
  const bool ftz = mods.take("ftz");
  Type type = mods.take_type();
  done(mods);
  if (type == Type::kF16x2 || type == Type::kBf16x2) {
    if (!has_comparison(comparison, Type::kF16)) return refuse("no such comparison");
    expect_operands(combine.empty() ? 3 : 4, combine.empty() ? 3 : 4);
    // Two comparisons, of the low and the high halves, with one predicate each.
    const OperandRef a = source(1, type), b = source(2, type);
    bool inverted = false;
    const OperandRef c = combine.empty() ? kNoOperand : source_predicate(operand(3), inverted);
    const OperandRef p = destination_predicate(operand(0));
    const OperandRef q = operand(0).pair ? destination_predicate(*operand(0).pair) : temp_predicate();
    const Type half = type == Type::kF16x2 ? Type::kF16 : Type::kBf16;
    OperandRef wide[4];
    for (unsigned i = 0; i < 4; ++i) {
      const OperandRef part = temp(2);
      Instr& in = emit("half.part", part, i < 2 ? a : b);
      in.imm = i & 1u;
      wide[i] = temp(4);
      emit(key("cvt.f32", half), wide[i], part).imm = ftz ? kHalfFlush : 0;
    }
    // The first result must not be read as the second's combination.
    const OperandRef first = temp_predicate();
    for (unsigned i = 0; i < 2; ++i) {
      Instr* in = nullptr;
      compare(comparison, Type::kF32, wide[i], wide[2 + i], in);
      in->dst = i == 0 ? first : q;
      in->c = c;
      set_predicate_flag(*in, inverted, kInvertC);
      in->sub = static_cast<uint8_t>(in->sub | (combine == "and" ? 1 : combine == "or" ? 2 : combine == "xor" ? 3 : 0));
    }
    emit("mov.pred", p, first);
    return;
  }
  if (!has_comparison(comparison, type)) return refuse("no such comparison");
  expect_operands(combine.empty() ? 3 : 4, combine.empty() ? 3 : 4);
  OperandRef a = source(1, type), b = source(2, type);
  if (is_half(type)) {
    const OperandRef wa = temp(4), wb = temp(4);
    emit(key("cvt.f32", type), wa, a).imm = ftz ? kHalfFlush : 0;
    emit(key("cvt.f32", type), wb, b).imm = ftz ? kHalfFlush : 0;
    a = wa, b = wb, type = Type::kF32;
  } else {
    a = flushed(a, type, ftz);
    b = flushed(b, type, ftz);
  }
  bool inverted = false;
  const OperandRef c = combine.empty() ? kNoOperand : source_predicate(operand(3), inverted);
  const OperandRef p = destination_predicate(operand(0));
  const OperandRef q = operand(0).pair ? destination_predicate(*operand(0).pair) : kNoOperand;
  Instr* in = nullptr;
  compare(comparison, type, a, b, in);
  in->dst = p;
  in->d = q;
  in->c = c;
  set_predicate_flag(*in, inverted, kInvertC);
  in->sub = static_cast<uint8_t>(in->sub | (combine == "and" ? 1 : combine == "or" ? 2 : combine == "xor" ? 3 : 0));
}

// Like setp, with 0 and all ones (integers) or 1.0 (floats) as results.
void Lowering::lower_set(Modifiers& mods) {
  const std::string_view comparison = mods.take_one(kComparisons);
  const std::string_view combine = mods.take_one("and or xor");
  const bool ftz = mods.take("ftz");
  const Type d_type = mods.take_type();
  Type type = mods.take_type();
  done(mods);
  if (type == Type::kF16x2 || type == Type::kBf16x2) return refuse("no packed form");
  if (!has_comparison(comparison, type)) return refuse("no such comparison");
  uint64_t yes = 0;
  switch (d_type) {
    case Type::kU32:
    case Type::kS32: yes = 0xffffffffu; break;
    case Type::kF32: yes = 0x3f800000u; break;
    case Type::kU16:
    case Type::kS16: yes = 0xffffu; break;
    case Type::kF16: yes = 0x3c00u; break;
    case Type::kBf16: yes = 0x3f80u; break;
    default: return refuse("no such type");
  }
  expect_operands(combine.empty() ? 3 : 4, combine.empty() ? 3 : 4);
  OperandRef a = source(1, type), b = source(2, type);
  if (is_half(type)) {
    const OperandRef wa = temp(4), wb = temp(4);
    emit(key("cvt.f32", type), wa, a).imm = ftz ? kHalfFlush : 0;
    emit(key("cvt.f32", type), wb, b).imm = ftz ? kHalfFlush : 0;
    a = wa, b = wb, type = Type::kF32;
  } else {
    a = flushed(a, type, ftz);
    b = flushed(b, type, ftz);
  }
  bool inverted = false;
  const OperandRef c = combine.empty() ? kNoOperand : source_predicate(operand(3), inverted);
  const OperandRef p = temp_predicate(), d = destination(0, d_type);
  Instr* in = nullptr;
  compare(comparison, type, a, b, in);
  in->dst = p;
  in->c = c;
  set_predicate_flag(*in, inverted, kInvertC);
  in->sub = static_cast<uint8_t>(in->sub | (combine == "and" ? 1 : combine == "or" ? 2 : combine == "xor" ? 3 : 0));
  emit(width_key("materialize", d_type), d, p).imm = yes;
}

void Lowering::lower_selp(Modifiers& mods) {
  const Type type = mods.take_type();
  done(mods);
  const unsigned bytes = ptx::type_bytes(type);
  if (bytes < 2 || bytes > 8 || type == Type::kOpaque) return refuse("no such type");
  expect_operands(4, 4);
  const OperandRef a = source(1, type), b = source(2, type);
  bool inverted = false;
  const OperandRef p = source_predicate(operand(3), inverted);
  set_predicate_flag(emit(width_key("selp", type), destination(0, type), a, b, p), inverted, kInvertC);
}

void Lowering::lower_slct(Modifiers& mods) {
  const bool ftz = mods.take("ftz");
  const Type type = mods.take_type(), by = mods.take_type();
  done(mods);
  const unsigned bytes = ptx::type_bytes(type);
  if (bytes < 2 || bytes > 8 || (by != Type::kS32 && by != Type::kF32)) return refuse("no such type");
  expect_operands(4, 4);
  const OperandRef a = source(1, type), b = source(2, type);
  const OperandRef c = flushed(source(3, by), by, ftz);
  emit(fmt::format("slct.{}.{}", ptx::type_name(by), bytes * 8), destination(0, type), a, b, c);
}

}  // namespace fargpu::sim

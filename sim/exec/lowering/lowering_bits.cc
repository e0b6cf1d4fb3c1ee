// Logic, shifts, bit fields and selection.
#include <fmt/core.h>

#include "sim/exec/lowering/lowering.h"

namespace fargpu::sim {
namespace {

using ptx::Type;

std::string key(std::string_view op, Type type) {
  return fmt::format("{}.{}", op, ptx::type_name(type));
}
std::string width_key(std::string_view op, Type type) {
  return fmt::format("{}.{}", op, ptx::register_bytes(type) * 8);
}
bool is_word(Type type) {
  return ptx::is_bits(type) && ptx::type_bytes(type) >= 2 && type != Type::kB128;
}

}  // namespace

void Lowering::lower_logic(Modifiers& mods) {
  const std::string_view op = current_->opcode;
  const Type type = mods.take_type();
  done(mods);
  expect_operands(3, 3);
  if (type == Type::kPred) {
    bool invert_a = false, invert_b = false;
    const OperandRef a = source_predicate(operand(1), invert_a),
                     b = source_predicate(operand(2), invert_b);
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
  if ((left && !is_word(type)) ||
      (!left && !is_word(type) && !(ptx::is_integer(type) && ptx::type_bytes(type) > 1))) {
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
  emit(width_key(current_->opcode, type),
       destination(0, current_->opcode == "brev" ? type : Type::kU32), a);
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
  const OperandRef a = source(1, type), b = source(2, type), c = source(3, Type::kU32),
                   d = source(4, Type::kU32);
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

void Lowering::lower_selp(Modifiers& mods) {
  const Type type = mods.take_type();
  done(mods);
  const unsigned bytes = ptx::type_bytes(type);
  if (bytes < 2 || bytes > 8 || type == Type::kOpaque) return refuse("no such type");
  expect_operands(4, 4);
  const OperandRef a = source(1, type), b = source(2, type);
  bool inverted = false;
  const OperandRef p = source_predicate(operand(3), inverted);
  set_predicate_flag(emit(width_key("selp", type), destination(0, type), a, b, p), inverted,
                     kInvertC);
}

void Lowering::lower_slct(Modifiers& mods) {
  const bool ftz = mods.take("ftz");
  const Type type = mods.take_type(), by = mods.take_type();
  done(mods);
  const unsigned bytes = ptx::type_bytes(type);
  if (bytes < 2 || bytes > 8 || (by != Type::kS32 && by != Type::kF32))
    return refuse("no such type");
  expect_operands(4, 4);
  const OperandRef a = source(1, type), b = source(2, type);
  const OperandRef c = flushed(source(3, by), by, ftz);
  emit(fmt::format("slct.{}.{}", ptx::type_name(by), bytes * 8), destination(0, type), a, b, c);
}

}  // namespace fargpu::sim

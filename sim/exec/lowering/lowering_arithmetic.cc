// Integer and floating-point arithmetic.
#include <fmt/core.h>

#include "sim/exec/lowering/lowering.h"

namespace fargpu::sim {
namespace {

using ptx::Type;

bool is_half(Type type) {
  return type == Type::kF16 || type == Type::kF16x2 || type == Type::kBf16 || type == Type::kBf16x2;
}
std::string key(std::string_view op, Type type) {
  return fmt::format("{}.{}", op, ptx::type_name(type));
}
// Without the sign: "add.32".
std::string width_key(std::string_view op, Type type) {
  return fmt::format("{}.{}", op, ptx::register_bytes(type) * 8);
}
bool is_wide_integer(Type type) { return ptx::is_integer(type) && ptx::type_bytes(type) >= 2; }
Type unsigned_type(unsigned bytes) {
  return bytes == 2 ? Type::kU16 : bytes == 4 ? Type::kU32 : bytes == 8 ? Type::kU64 : Type::kB128;
}

}  // namespace

uint16_t Lowering::float_control(std::string_view rounding, bool ftz) {
  uint16_t control = ftz ? kFlushDenormals : 0;
  if (rounding == "rz") control |= kRoundZero;
  if (rounding == "rm") control |= kRoundDown;
  if (rounding == "rp") control |= kRoundUp;
  return control;
}

OperandRef Lowering::flushed(OperandRef ref, Type type, bool ftz) {
  if (!ftz || type != Type::kF32) return ref;
  const OperandRef out = temp(4);
  emit("flush.f32", out, ref);
  return out;
}

void Lowering::binary_float(std::string_view op, Type type, std::string_view rounding, bool ftz,
                            bool sat) {
  expect_operands(3, 3);
  if (type != Type::kF32 && (ftz || sat)) return refuse(".ftz and .sat need .f32");
  const OperandRef a = source(1, type), b = source(2, type), d = destination(0, type);
  emit(key(op, type), d, a, b).float_control = float_control(rounding, ftz);
  if (sat) emit(key("sat", type), d, d);
}

// f16, bf16 and their packed forms; the modifiers travel in flags (HalfFlags in half.h).
void Lowering::half_op(std::string_view op, Type type, size_t sources, uint64_t flags) {
  expect_operands(sources + 1, sources + 1);
  const OperandRef a = source(1, type);
  const OperandRef b = sources > 1 ? source(2, type) : kNoOperand;
  const OperandRef c = sources > 2 ? source(3, type) : kNoOperand;
  emit(key(op, type), destination(0, type), a, b, c).imm = flags;
}

void Lowering::lower_add_sub(Modifiers& mods) {
  const std::string_view op = current_->opcode;
  if (mods.take("cc")) return lower_carry(mods);
  const std::string_view rounding = mods.take_one("rn rz rm rp");
  const bool ftz = mods.take("ftz"), sat = mods.take("sat");
  const Type type = mods.take_type();
  done(mods);
  if (is_half(type)) {
    if (!rounding.empty() && rounding != "rn") return refuse("only .rn");
    return half_op(op, type, 2, (ftz ? kHalfFlush : 0) | (sat ? kHalfSaturate : 0));
  }
  if (type == Type::kF32 || type == Type::kF64) return binary_float(op, type, rounding, ftz, sat);
  if (type == Type::kF32x2) {
    expect_operands(3, 3);
    const OperandRef a = source(1, type), b = source(2, type), d = destination(0, type);
    return static_cast<void>(emit(key(op, type), d, a, b).float_control =
                                 float_control(rounding, ftz));
  }
  if (!is_wide_integer(type) || !rounding.empty() || ftz || (sat && type != Type::kS32)) {
    return refuse("no such type");
  }
  expect_operands(3, 3);
  const OperandRef a = source(1, type), b = source(2, type);
  emit(sat ? fmt::format("{}.sat.s32", op) : width_key(op, type), destination(0, type), a, b);
}

// add.cc addc sub.cc subc: the carry is a hidden predicate of the function.
void Lowering::lower_carry(Modifiers& mods) {
  const std::string_view op = current_->opcode;
  const bool uses = op == "addc" || op == "subc";
  const bool writes = mods.take("cc") || !uses;
  const Type type = mods.take_type();
  done(mods);
  if (ptx::type_bytes(type) < 4 || !ptx::is_integer(type))
    return refuse("needs a 32- or 64-bit integer");
  expect_operands(3, 3);
  if (carry_ == kNoOperand) carry_ = allocate(2);
  const OperandRef a = source(1, type), b = source(2, type);
  Instr& in = emit(width_key(op.starts_with("add") ? "addc" : "subc", type), destination(0, type),
                   a, b, carry_);
  in.sub = static_cast<uint8_t>((uses ? 1 : 0) | (writes ? 2 : 0));
}

void Lowering::lower_mul(Modifiers& mods) {
  const std::string_view rounding = mods.take_one("rn rz rm rp");
  const bool ftz = mods.take("ftz"), sat = mods.take("sat");
  const std::string_view part = mods.take_one("lo hi wide");
  const Type type = mods.take_type();
  done(mods);
  if (is_half(type))
    return half_op("mul", type, 2, (ftz ? kHalfFlush : 0) | (sat ? kHalfSaturate : 0));
  if (type == Type::kF32 || type == Type::kF64)
    return binary_float("mul", type, rounding, ftz, sat);
  expect_operands(3, 3);
  if (type == Type::kF32x2) {
    const OperandRef a = source(1, type), b = source(2, type), d = destination(0, type);
    return static_cast<void>(emit(key("mul", type), d, a, b).float_control =
                                 float_control(rounding, ftz));
  }
  if (!is_wide_integer(type) || part.empty())
    return refuse("needs .lo, .hi or .wide and an integer type");
  const OperandRef a = source(1, type), b = source(2, type);
  if (part == "wide") {
    if (ptx::type_bytes(type) == 8) return refuse("no .wide of 64 bits");
    emit(key("mul.wide", type), destination(0, unsigned_type(2 * ptx::type_bytes(type))), a, b);
  } else {
    emit(part == "lo" ? width_key("mul.lo", type) : key("mul.hi", type), destination(0, type), a,
         b);
  }
}

void Lowering::lower_mad(Modifiers& mods) {
  const bool with_carry = current_->opcode == "madc" || mods.take("cc");
  const std::string_view rounding = mods.take_one("rn rz rm rp");
  const bool ftz = mods.take("ftz"), sat = mods.take("sat");
  const std::string_view part = mods.take_one("lo hi wide");
  const Type type = mods.take_type();
  if (with_carry) {
    // The product first, then an addition that reads or writes the carry.
    const bool uses = current_->opcode == "madc";
    bool writes = !uses;
    if (uses) writes = mods.take("cc");
    done(mods);
    if (!ptx::is_integer(type) || ptx::type_bytes(type) < 4 || (part != "lo" && part != "hi")) {
      return refuse("needs .lo or .hi and a 32- or 64-bit integer");
    }
    expect_operands(4, 4);
    if (carry_ == kNoOperand) carry_ = allocate(2);
    const OperandRef a = source(1, type), b = source(2, type), c = source(3, type);
    const OperandRef product = temp(ptx::register_bytes(type));
    emit(part == "lo" ? width_key("mul.lo", type) : key("mul.hi", type), product, a, b);
    Instr& in = emit(width_key("addc", type), destination(0, type), product, c, carry_);
    in.sub = static_cast<uint8_t>((uses ? 1 : 0) | (writes ? 2 : 0));
    return;
  }
  done(mods);
  expect_operands(4, 4);
  if (type == Type::kF32 || type == Type::kF64) {  // mad of floats is fma
    const OperandRef a = source(1, type), b = source(2, type), c = source(3, type),
                     d = destination(0, type);
    emit(key("fma", type), d, a, b, c).float_control = float_control(rounding, ftz);
    if (sat) emit(key("sat", type), d, d);
    return;
  }
  if (!is_wide_integer(type) || part.empty() || (sat && (part != "hi" || type != Type::kS32))) {
    return refuse("needs .lo, .hi or .wide and an integer type");
  }
  const OperandRef a = source(1, type), b = source(2, type);
  if (part == "wide") {
    if (ptx::type_bytes(type) == 8) return refuse("no .wide of 64 bits");
    const Type wide = unsigned_type(2 * ptx::type_bytes(type));
    const OperandRef c = source(3, wide);
    emit(key("mad.wide", type), destination(0, wide), a, b, c);
    return;
  }
  const OperandRef c = source(3, type);
  emit(part == "lo" ? width_key("mad.lo", type) : key(sat ? "mad.hi.sat" : "mad.hi", type),
       destination(0, type), a, b, c);
}

void Lowering::lower_fma(Modifiers& mods) {
  const std::string_view rounding = mods.take_one("rn rz rm rp");
  const bool ftz = mods.take("ftz"), sat = mods.take("sat"), relu = mods.take("relu");
  const bool oob = mods.take("oob");
  const Type type = mods.take_type();
  done(mods);
  if (oob) return refuse(".oob");
  if (is_half(type)) {
    return half_op("fma", type, 3,
                   (ftz ? kHalfFlush : 0) | (sat ? kHalfSaturate : 0) | (relu ? kHalfRelu : 0));
  }
  if (type != Type::kF32 && type != Type::kF64 && type != Type::kF32x2)
    return refuse("no such type");
  if (relu || (type != Type::kF32 && sat)) return refuse("no such modifier for this type");
  expect_operands(4, 4);
  const OperandRef a = source(1, type), b = source(2, type), c = source(3, type),
                   d = destination(0, type);
  emit(key("fma", type), d, a, b, c).float_control = float_control(rounding, ftz);
  if (sat) emit(key("sat", type), d, d);
}

void Lowering::lower_div(Modifiers& mods) {
  const std::string_view rounding = mods.take_one("rn rz rm rp approx full");
  const bool ftz = mods.take("ftz");
  const Type type = mods.take_type();
  done(mods);
  if (type == Type::kF32 || type == Type::kF64)
    return binary_float("div", type, rounding, ftz, false);
  if (!is_wide_integer(type)) return refuse("no such type");
  expect_operands(3, 3);
  const OperandRef a = source(1, type), b = source(2, type);
  emit(key("div", type), destination(0, type), a, b);
}

void Lowering::lower_rem(Modifiers& mods) {
  const Type type = mods.take_type();
  done(mods);
  if (!is_wide_integer(type)) return refuse("no such type");
  expect_operands(3, 3);
  const OperandRef a = source(1, type), b = source(2, type);
  emit(key("rem", type), destination(0, type), a, b);
}

void Lowering::lower_abs_neg(Modifiers& mods) {
  const std::string_view op = current_->opcode;
  const bool ftz = mods.take("ftz");
  const Type type = mods.take_type();
  done(mods);
  if (is_half(type)) return half_op(op, type, 1, ftz ? kHalfFlush : 0);
  expect_operands(2, 2);
  if (type == Type::kF32 || type == Type::kF64) {
    const OperandRef a = flushed(source(1, type), type, ftz);
    emit(key(op, type), destination(0, type), a);
    return;
  }
  if (!ptx::is_signed(type) || ptx::type_bytes(type) < 2 || ftz) return refuse("no such type");
  emit(width_key(op, type), destination(0, type), source(1, type));
}

void Lowering::lower_min_max(Modifiers& mods) {
  const std::string op(current_->opcode);
  const bool ftz = mods.take("ftz"), nan = mods.take("NaN"), relu = mods.take("relu");
  const bool xorsign = mods.take("xorsign"), abs = mods.take("abs");
  const Type type = mods.take_type();
  done(mods);
  if (xorsign != abs) return refuse(".xorsign and .abs go together");
  if (is_half(type)) {
    return half_op(op, type, 2,
                   (ftz ? kHalfFlush : 0) | (nan ? kHalfNan : 0) | (xorsign ? kHalfXorSign : 0));
  }
  if (type == Type::kU16x2 || type == Type::kS16x2) {
    expect_operands(3, 3);
    const OperandRef a = source(1, type), b = source(2, type);
    Instr& in = emit(key(op, type), destination(0, type), a, b);
    in.imm = relu;
    return;
  }
  const size_t most = type == Type::kF32 ? 4 : 3;
  expect_operands(3, most);
  if (type == Type::kF32 || type == Type::kF64) {
    if (type == Type::kF64 && (nan || xorsign || ftz)) return refuse("no such modifier for .f64");
    const std::string name = op + (nan ? ".nan" : "") + (xorsign ? ".xorsign.abs" : "");
    OperandRef a = flushed(source(1, type), type, ftz);
    for (size_t i = 2; i < operand_count(); ++i) {
      const OperandRef b = flushed(source(i, type), type, ftz);
      const OperandRef d = i + 1 == operand_count() ? destination(0, type) : temp(4);
      emit(key(name, type), d, a, b);
      a = d;
    }
    return;
  }
  if (!is_wide_integer(type) || ftz || nan || xorsign) return refuse("no such type");
  const OperandRef a = source(1, type), b = source(2, type), d = destination(0, type);
  emit(key(op, type), d, a, b);
  if (relu) {
    if (type != Type::kS32) return refuse(".relu needs .s32");
    emit("max.s32", d, d, context_.constants->value(0, 4));
  }
}

void Lowering::lower_sad(Modifiers& mods) {
  const Type type = mods.take_type();
  done(mods);
  if (!is_wide_integer(type)) return refuse("no such type");
  expect_operands(4, 4);
  const OperandRef a = source(1, type), b = source(2, type), c = source(3, type);
  emit(key("sad", type), destination(0, type), a, b, c);
}

void Lowering::lower_mul24(Modifiers& mods) {
  const bool add = current_->opcode == "mad24";
  const std::string_view part = mods.take_one("lo hi");
  const bool sat = mods.take("sat");
  const Type type = mods.take_type();
  done(mods);
  if ((type != Type::kU32 && type != Type::kS32) || part.empty())
    return refuse("needs .lo or .hi and 32 bits");
  if (sat && (!add || part != "hi" || type != Type::kS32)) return refuse(".sat needs mad24.hi.s32");
  expect_operands(add ? 4 : 3, add ? 4 : 3);
  const OperandRef a = source(1, type), b = source(2, type);
  if (!add) {
    emit(key(fmt::format("mul24.{}", part), type), destination(0, type), a, b);
    return;
  }
  const OperandRef c = source(3, type), product = temp(4);
  emit(key(fmt::format("mul24.{}", part), type), product, a, b);
  emit(sat ? "add.sat.s32" : "add.32", destination(0, type), product, c);
}

// rcp, sqrt, rsqrt.
void Lowering::lower_unary_float(Modifiers& mods) {
  const std::string_view op = current_->opcode;
  const std::string_view rounding = mods.take_one("rn rz rm rp");
  const bool approx = mods.take("approx"), ftz = mods.take("ftz");
  const Type type = mods.take_type();
  done(mods);
  if (type != Type::kF32 && type != Type::kF64) return refuse("no such type");
  if (approx == !rounding.empty() || (op == "rsqrt" && !approx))
    return refuse("needs a rounding or .approx");
  expect_operands(2, 2);
  if (type == Type::kF64 && approx && op != "sqrt") {
    // rcp and (with .ftz) rsqrt of f64 are coarse; without .ftz rsqrt keeps all bits.
    const bool coarse = op == "rcp" || ftz;
    emit(coarse ? fmt::format("{}.coarse.f64", op) : "rsqrt.f64", destination(0, type),
         source(1, type));
    return;
  }
  if (op == "rsqrt") {  // computed in double: control bits would not reach it
    const OperandRef a = flushed(source(1, type), type, ftz), d = destination(0, type);
    emit("rsqrt.f32", d, a);
    if (ftz) emit("flush.f32", d, d);
    return;
  }
  const OperandRef a = source(1, type);
  emit(key(op, type), destination(0, type), a).float_control = float_control(rounding, ftz);
}

void Lowering::lower_approximation(Modifiers& mods) {
  const std::string_view op = current_->opcode;
  const bool approx = mods.take("approx"), ftz = mods.take("ftz");
  const Type type = mods.take_type();
  done(mods);
  if (!approx) return refuse("needs .approx");
  if (is_half(type)) return half_op(op, type, 1, ftz ? kHalfFlush : 0);
  if (type != Type::kF32) return refuse("no such type");
  expect_operands(2, 2);
  const OperandRef a = flushed(source(1, type), type, ftz), d = destination(0, type);
  emit(key(op, type), d, a);
  if (ftz) emit("flush.f32", d, d);
}

void Lowering::lower_testp(Modifiers& mods) {
  const std::string_view what = mods.take_one("finite infinite number notanumber normal subnormal");
  const Type type = mods.take_type();
  done(mods);
  if (what.empty() || (type != Type::kF32 && type != Type::kF64)) return refuse("no such test");
  expect_operands(2, 2);
  const OperandRef a = source(1, type);
  emit(key(fmt::format("testp.{}", what), type), destination_predicate(operand(0)), a);
}

void Lowering::lower_copysign(Modifiers& mods) {
  const Type type = mods.take_type();
  done(mods);
  if (type != Type::kF32 && type != Type::kF64) return refuse("no such type");
  expect_operands(3, 3);
  const OperandRef a = source(1, type), b = source(2, type);
  emit(key("copysign", type), destination(0, type), a, b);
}

// dp4a, dp2a.
void Lowering::lower_dot(Modifiers& mods) {
  const std::string_view half = mods.take_one("lo hi");
  const Type a_type = mods.take_type(), b_type = mods.take_type();
  done(mods);
  const auto fits = [](Type t) { return t == Type::kU32 || t == Type::kS32; };
  if (!fits(a_type) || !fits(b_type) || half.empty() != (current_->opcode == "dp4a"))
    return refuse("no such type");
  expect_operands(4, 4);
  const OperandRef a = source(1, a_type), b = source(2, b_type), c = source(3, Type::kB32);
  Instr& in = emit(
      fmt::format("{}.{}.{}", current_->opcode, ptx::type_name(a_type), ptx::type_name(b_type)),
      destination(0, Type::kB32), a, b, c);
  in.imm = half == "hi" ? 2 : 0;
}

}  // namespace fargpu::sim

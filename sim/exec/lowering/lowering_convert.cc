// cvt: every pair of types goes over a few exact steps and rounds once.
#include <fmt/core.h>

#include <algorithm>

#include "sim/exec/lowering/lowering.h"

namespace fargpu::sim {
namespace {

using ptx::Type;

bool is_half(Type type) { return type == Type::kF16 || type == Type::kBf16; }
bool is_plain_float(Type type) { return type == Type::kF32 || type == Type::kF64; }
bool is_packed(Type type) {
  return type == Type::kF16x2 || type == Type::kBf16x2 || type == Type::kE4m3x2 ||
         type == Type::kE5m2x2;
}
std::string_view name(Type type) { return ptx::type_name(type); }
uint8_t rounding_number(std::string_view rounding) {
  return rounding == "rz"    ? 1
         : rounding == "rm"  ? 2
         : rounding == "rp"  ? 3
         : rounding == "rna" ? 4
                             : 0;
}

}  // namespace

void Lowering::lower_cvt(Modifiers& mods) {
  if (mods.take("pack")) return lower_cvt_pack(mods);
  const std::string_view rounding = mods.take_one("rn rz rm rp rna rni rzi rmi rpi rs");
  const bool ftz = mods.take("ftz"), sat = mods.take("sat"), relu = mods.take("relu");
  const bool finite = mods.take("satfinite");
  const Type to = mods.take_type(), from = mods.take_type();
  done(mods);
  if (to == Type::kNone || from == Type::kNone || rounding == "rs")
    return refuse("no such conversion");
  const uint64_t half_flags = (ftz ? kHalfFlush : 0) | (sat ? kHalfSaturate : 0) |
                              (relu ? kHalfRelu : 0) | (finite ? kHalfFinite : 0);
  const bool to_integer = ptx::is_integer(to), from_integer = ptx::is_integer(from);
  const bool integral = rounding.size() == 3 && rounding.back() == 'i';

  if (is_packed(to) || is_packed(from) || to == Type::kTf32) {
    const bool two = from == Type::kF32 && is_packed(to);
    expect_operands(two ? 3 : 2, two ? 3 : 2);
    if (integral || sat) return refuse("no such conversion");
    const OperandRef a = source(1, from), b = two ? source(2, from) : kNoOperand;
    Instr& in = emit(fmt::format("cvt.{}.{}", name(to), name(from)), destination(0, to), a, b);
    in.sub = rounding_number(rounding);
    in.imm = half_flags;
    return;
  }
  if (!(to_integer || is_plain_float(to) || is_half(to)) ||
      !(from_integer || is_plain_float(from) || is_half(from))) {
    return refuse("no such conversion");
  }
  if ((relu || finite || rounding == "rna") && !is_half(to))
    return refuse("no such modifier for these types");
  expect_operands(2, 2);
  OperandRef value = source_wide(operand(1), from);
  // The destination's register may be wider than the result.
  const unsigned natural = ptx::register_bytes(to);
  const unsigned have = dry_ ? natural : register_size(operand(0));
  if (!dry_ && have == 0 && operand(0).kind != Operand::Kind::kSink)
    return fail("the destination is not a register");
  const unsigned width = std::max(have, natural);
  const Type whole = width == 2 ? Type::kB16 : width == 4 ? Type::kB32 : Type::kB64;
  const OperandRef target = destination(0, whole);
  const OperandRef d = width == natural ? target : temp(natural);

  if (to_integer && from_integer) {
    if (!rounding.empty()) return refuse("no rounding between integers");
    if (sat) {
      const OperandRef clamped = temp(ptx::register_bytes(from));
      Instr& in = emit(fmt::format("clamp.{}", name(from)), clamped, value);
      const unsigned bits = 8 * ptx::type_bytes(to) - (ptx::is_signed(to) ? 1 : 0);
      in.imm = ~uint64_t{0} >> (64 - bits);
      in.sub = ptx::is_signed(to) ? 1 : 0;
      value = clamped;
    }
    emit(fmt::format("cvt.{}.{}", name(to), name(from)), d, value);
  } else if (to_integer) {
    if (!integral) return refuse("needs .rni, .rzi, .rmi or .rpi");
    Type middle = from;
    if (is_half(from)) {
      const OperandRef wide = temp(4);
      emit(fmt::format("cvt.f32.{}", name(from)), wide, value);
      value = wide;
      middle = Type::kF32;
    }
    value = flushed(value, middle, ftz);
    if (rounding != "rzi") {
      const OperandRef whole = temp(ptx::register_bytes(middle));
      emit(fmt::format("{}.{}", rounding, name(middle)), whole, value);
      value = whole;
    }
    emit(fmt::format("cvt.{}.{}", name(to), name(middle)), d, value);
  } else if (from_integer && !is_half(to)) {
    if (integral || (rounding.empty())) return refuse("needs .rn, .rz, .rm or .rp");
    emit(fmt::format("cvt.{}.{}", name(to), name(from)), d, value).float_control =
        float_control(rounding, false);
    if (sat) emit(fmt::format("sat.{}", name(to)), d, d);
  } else if (is_half(to)) {
    // Through a double that is exact, or odd where 64 bits are too many for it, so that one
    // rounding happens.
    OperandRef exact = value;
    if (from != Type::kF64) {
      exact = temp(8);
      if (from_integer && ptx::type_bytes(from) == 8)
        emit(fmt::format("cvt.odd.{}", name(from)), exact, value);
      else if (from_integer)
        emit(fmt::format("cvt.f64.{}", name(from)), exact, value);
      else
        emit(fmt::format("cvt.f64.{}", name(from)), exact, flushed(value, from, ftz));
    }
    if (integral) {
      const OperandRef rounded = temp(8);
      emit(fmt::format("{}.f64", rounding), rounded, exact);
      exact = rounded;
    }
    Instr& in = emit(fmt::format("cvt.{}.f64", name(to)), d, exact);
    in.sub = integral ? 0 : rounding_number(rounding);
    in.imm = half_flags;
  } else if (is_half(from)) {
    if (integral) return refuse("no such conversion");
    emit(fmt::format("cvt.{}.{}", name(to), name(from)), d, value).imm = ftz ? kHalfFlush : 0;
    if (sat) emit(fmt::format("sat.{}", name(to)), d, d);
  } else if (to == from) {
    value = flushed(value, from, ftz);
    if (integral)
      emit(fmt::format("{}.{}", rounding, name(to)), d, value);
    else
      emit(fmt::format("mov.{}", natural * 8), d, value);
    if (sat) emit(fmt::format("sat.{}", name(to)), d, d);
  } else {
    if (integral) return refuse("no such conversion");
    if (to == Type::kF32 && rounding.empty()) return refuse("needs .rn, .rz, .rm or .rp");
    value = flushed(value, from, ftz);
    emit(fmt::format("cvt.{}.{}", name(to), name(from)), d, value).float_control =
        float_control(rounding, ftz && to == Type::kF32);
    if (sat) emit(fmt::format("sat.{}", name(to)), d, d);
  }
  if (d != target) {
    const char sign = ptx::is_signed(to) ? 's' : 'u';
    emit(fmt::format("cvt.{}{}.{}{}", sign, width * 8, sign, natural * 8), target, d);
  }
}

void Lowering::lower_cvt_pack(Modifiers& mods) {
  const bool sat = mods.take("sat");
  const Type to = mods.take_type(), from = mods.take_type(), rest = mods.take_type();
  done(mods);
  const bool bytes = ptx::type_bytes(to) == 1;
  if (!sat || !ptx::is_integer(to) || ptx::type_bytes(to) > 2 || from != Type::kS32 ||
      bytes != (rest == Type::kB32)) {
    return refuse("no such conversion");
  }
  expect_operands(bytes ? 4 : 3, bytes ? 4 : 3);
  const OperandRef a = source(1, from), b = source(2, from),
                   c = bytes ? source(3, rest) : kNoOperand;
  emit(fmt::format("cvt.pack.{}", name(to)), destination(0, Type::kB32), a, b, c);
}

}  // namespace fargpu::sim

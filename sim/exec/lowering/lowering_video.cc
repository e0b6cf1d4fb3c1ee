// vadd, vsub, vabsdiff, vmin, vmax, vshl, vshr, vmad, vset and the packed forms with 2 and 4 parts.
// The selectors of the scalar forms (.b0 .. .h1) are written after the operands' names, which the
// parser hands over as modifiers of the operand.
#include <fmt/core.h>

#include "sim/exec/lowering/lowering.h"
#include "sim/exec/video_op.h"

namespace fargpu::sim {
namespace {

using ptx::Type;

bool is_word(Type type) { return type == Type::kU32 || type == Type::kS32; }

std::optional<VideoKind> kind_of(std::string_view name) {
  if (name == "add") return VideoKind::kAdd;
  if (name == "sub") return VideoKind::kSub;
  if (name == "absdiff") return VideoKind::kAbsDiff;
  if (name == "min") return VideoKind::kMin;
  if (name == "max") return VideoKind::kMax;
  if (name == "avrg") return VideoKind::kAverage;
  if (name == "set") return VideoKind::kSet;
  if (name == "shl") return VideoKind::kShl;
  if (name == "shr") return VideoKind::kShr;
  if (name == "mad") return VideoKind::kMad;
  return std::nullopt;
}

// ".b0" .. ".b3", ".h0", ".h1" or nothing.
std::optional<uint32_t> selector(std::string_view part, uint32_t none) {
  if (part.empty()) return none;
  if (part.size() == 2 && part[0] == 'b' && part[1] >= '0' && part[1] <= '3')
    return static_cast<uint32_t>(part[1] - '0');
  if (part == "h0") return 4;
  if (part == "h1") return 5;
  return std::nullopt;
}

// ".b3210" or ".h10" of packed operands: the nearest register of every part.
std::optional<uint32_t> packed_selector(std::string_view part, unsigned parts, uint32_t usual) {
  if (part.empty()) return usual;
  if (part.size() != parts + 1 || part[0] != (parts == 4 ? 'b' : 'h')) return std::nullopt;
  uint32_t select = 0;
  for (unsigned i = 0; i < parts; ++i) {
    const char c = part[1 + i];
    if (c < '0' || c >= static_cast<char>('0' + 2 * parts)) return std::nullopt;
    select = select << 4 | static_cast<uint32_t>(c - '0');
  }
  return select;
}

}  // namespace

void Lowering::lower_video(Modifiers& mods) {
  std::string_view name = current_->opcode.substr(1);
  unsigned parts = 1;
  if (name.back() == '2' || name.back() == '4') {
    parts = name.back() == '2' ? 2 : 4;
    name.remove_suffix(1);
  }
  VideoOp op;
  const std::optional<VideoKind> kind = kind_of(name);
  if (!kind) return refuse("no such video instruction");
  op.kind = *kind;
  const bool is_set = op.kind == VideoKind::kSet, is_mad = op.kind == VideoKind::kMad;
  Type d_type = Type::kU32;
  if (!is_set && !is_mad) d_type = mods.take_type();
  if (is_mad) d_type = mods.take_type();
  const Type a_type = mods.take_type(), b_type = mods.take_type();
  op.saturate = mods.take("sat");
  if (is_set) {
    const std::string_view c = mods.take_one("eq ne lt le gt ge");
    if (c.empty()) return refuse("needs a comparison");
    op.compare = c == "eq"   ? VideoCompare::kEq
                 : c == "ne" ? VideoCompare::kNe
                 : c == "lt" ? VideoCompare::kLt
                 : c == "le" ? VideoCompare::kLe
                 : c == "gt" ? VideoCompare::kGt
                             : VideoCompare::kGe;
  }
  if (op.kind == VideoKind::kShl || op.kind == VideoKind::kShr) {
    const std::string_view mode = mods.take_one("clamp wrap");
    if (mode.empty()) return refuse("needs .clamp or .wrap");
    op.wrap = mode == "wrap";
  }
  if (is_mad) {
    op.plus_one = mods.take("po");
    op.shift = mods.take("shr7") ? 7 : mods.take("shr15") ? 15 : 0;
  }
  const std::string_view second = mods.take_one("add min max");
  done(mods);
  if (!is_word(d_type) || !is_word(a_type) || !is_word(b_type)) return refuse("needs .u32 or .s32");
  op.d_signed = ptx::is_signed(d_type);
  op.a_signed = ptx::is_signed(a_type);
  op.b_signed = ptx::is_signed(b_type);
  if (parts == 1) {
    if (!second.empty()) {
      op.second = second == "add"   ? VideoSecond::kAdd
                  : second == "min" ? VideoSecond::kMin
                                    : VideoSecond::kMax;
    }
    const std::optional<uint32_t> ds = selector(operand(0).part, 7),
                                  as = selector(operand(1).part, 6),
                                  bs = selector(operand(2).part, 6);
    if (!ds || !as || !bs) return refuse("no such selector");
    op.d_select = *ds;
    op.a_select = *as;
    op.b_select = *bs;
    const bool needs_c = is_mad || !second.empty() || *ds != 7;
    expect_operands(needs_c ? 4 : 3, needs_c ? 4 : 3);
    Operand a_operand = operand(1), c_operand = operand(3);
    if (is_mad) {  // -(a * b) + c and a * b - c
      op.negate_product = a_operand.negative;
      op.negate_c = c_operand.negative;
      a_operand.negative = c_operand.negative = false;
    }
    const OperandRef a = source(a_operand, a_type), b = source(2, b_type);
    const OperandRef c = needs_c ? source(c_operand, d_type) : kNoOperand;
    emit("video.scalar", destination(0, d_type), a, b, c).imm = pack_video(op);
    return;
  }
  if (!second.empty() && second != "add") return refuse("no such second operation");
  op.parts = parts;
  op.accumulate = !second.empty();
  const uint32_t usual = parts == 4 ? 0x3210 : 0x10;
  const std::optional<uint32_t> as = packed_selector(operand(1).part, parts, usual),
                                bs = packed_selector(operand(2).part, parts,
                                                     parts == 4 ? 0x7654 : 0x32);
  if (!as || !bs) return refuse("no such selector");
  op.a_select = *as;
  op.b_select = *bs;
  op.mask = (1u << parts) - 1;
  if (const std::string_view mask = operand(0).part; !mask.empty()) {  // .b0, .b10 ... or .h0, .h10
    op.mask = 0;
    for (const char c : mask.substr(1)) {
      if (c < '0' || c >= static_cast<char>('0' + parts)) return refuse("no such mask");
      op.mask = op.mask | 1u << (c - '0');
    }
  }
  expect_operands(4, 4);
  const OperandRef a = source(1, a_type), b = source(2, b_type), c = source(3, Type::kU32);
  emit("video.packed", destination(0, d_type), a, b, c).imm = pack_video(op);
}

}  // namespace fargpu::sim

// Operands: registers, constants, special registers and addresses of variables.
#include <fmt/core.h>

#include <algorithm>
#include <bit>

#include "sim/exec/lowering/lowering.h"
#include "sim/ptx/constant.h"

namespace fargpu::sim {
namespace {

using ptx::Type;

uint64_t align_up(uint64_t value, uint64_t align) { return (value + align - 1) / align * align; }

std::string size_key(std::string_view op, unsigned bytes) {
  return fmt::format("{}.{}", op, bytes * 8);
}

// Predicates and other widths of one register file never mix; this is what a message calls them.
std::string_view word_of(bool predicate) { return predicate ? "a predicate" : "a value"; }

struct SpecialValue {
  std::string_view name;
  Area area;
  uint32_t index;
};
constexpr SpecialValue kSpecials[] = {
    {"%tid.x", kWarpArea, kTidX},
    {"%tid.y", kWarpArea, kTidY},
    {"%tid.z", kWarpArea, kTidZ},
    {"%warpid", kWarpArea, kWarpId},
    {"%laneid", kWarpArea, kLaneId},
    {"%ntid.x", kBlockArea, kNtidX},
    {"%ntid.y", kBlockArea, kNtidY},
    {"%ntid.z", kBlockArea, kNtidZ},
    {"%ctaid.x", kBlockArea, kCtaidX},
    {"%ctaid.y", kBlockArea, kCtaidY},
    {"%ctaid.z", kBlockArea, kCtaidZ},
    {"%nctaid.x", kBlockArea, kNctaidX},
    {"%nctaid.y", kBlockArea, kNctaidY},
    {"%nctaid.z", kBlockArea, kNctaidZ},
    {"%nwarpid", kBlockArea, kNwarpId},
    {"%smid", kBlockArea, kSmid},
    {"%nsmid", kBlockArea, kNsmid},
    {"%gridid", kBlockArea, kGridIdLow},
    {"%dynamic_smem_size", kBlockArea, kDynamicShared},
    {"%total_smem_size", kBlockArea, kTotalShared},
    {"%aggr_smem_size", kBlockArea, kTotalShared},
    {"%envreg1", kBlockArea, kEnvreg1},
    {"%envreg2", kBlockArea, kEnvreg2},
    {"%clusterid.x", kBlockArea, kClusterIdX},
    {"%clusterid.y", kBlockArea, kClusterIdY},
    {"%clusterid.z", kBlockArea, kClusterIdZ},
    {"%nclusterid.x", kBlockArea, kNclusterIdX},
    {"%nclusterid.y", kBlockArea, kNclusterIdY},
    {"%nclusterid.z", kBlockArea, kNclusterIdZ},
    {"%cluster_ctaid.x", kBlockArea, kClusterCtaidX},
    {"%cluster_ctaid.y", kBlockArea, kClusterCtaidY},
    {"%cluster_ctaid.z", kBlockArea, kClusterCtaidZ},
    {"%cluster_nctaid.x", kBlockArea, kClusterNctaidX},
    {"%cluster_nctaid.y", kBlockArea, kClusterNctaidY},
    {"%cluster_nctaid.z", kBlockArea, kClusterNctaidZ},
    {"%cluster_ctarank", kBlockArea, kClusterRank},
    {"%cluster_nctarank", kBlockArea, kClusterBlocks},
};
constexpr std::string_view kZeros[] = {"%tid.w",
                                       "%ctaid.w",
                                       "%clusterid.w",
                                       "%cluster_ctaid.w",
                                       "%reserved_smem_offset_begin",
                                       "%reserved_smem_offset_end",
                                       "%reserved_smem_offset_cap"};
constexpr std::string_view kOnes[] = {"%ntid.w", "%nctaid.w", "%nclusterid.w", "%cluster_nctaid.w"};

}  // namespace

bool constant_bits_of(const ptx::Operand& operand, Type type, uint64_t& bits) {
  using Kind = ptx::Constant::Kind;
  ptx::Constant constant;
  constant.kind = operand.kind == ptx::Operand::Kind::kInteger ? Kind::kInteger
                  : operand.is_single                          ? Kind::kSingle
                                                               : Kind::kFloat;
  constant.value = operand.value;
  constant.is_unsigned = operand.is_unsigned;
  return ptx::constant_bits(constant, type, bits);
}

void Lowering::lay_out_parameters() {
  places_.resize(function_.variables.size());
  FunctionCode& code = program_.functions[function_index_];
  if (function_.is_entry) {
    uint64_t offset = 0;
    code.info.parameters.clear();
    for (const uint32_t index : function_.params) {
      const ptx::Variable& v = function_.variables[index];
      offset = align_up(offset, v.align);
      places_[index] = {Space::kParam, offset};
      code.info.parameters.push_back({offset, v.bytes, v.align});
      offset += v.bytes;
    }
    code.info.parameter_bytes = offset;
    return;
  }
  for (const bool is_return : {false, true}) {
    auto& copies = is_return ? code.returns : code.params;
    copies.clear();
    for (const uint32_t index : is_return ? function_.returns : function_.params) {
      const ptx::Variable& v = function_.variables[index];
      local_bytes_ = align_up(local_bytes_, v.align);
      places_[index] = {Space::kLocal, local_bytes_};
      copies.push_back({static_cast<uint32_t>(local_bytes_), static_cast<uint32_t>(v.bytes)});
      local_bytes_ += v.bytes;
    }
  }
}

bool Lowering::lay_out_variables() {
  stand_in_ = {};
  current_ = &stand_in_;
  for (size_t i = 0; i < function_.variables.size(); ++i) {
    const ptx::Variable& v = function_.variables[i];
    stand_in_.line = v.line;
    if (v.space == Space::kShared) {
      shared_bytes_ = align_up(shared_bytes_, v.align);
      shared_align_ = std::max(shared_align_, v.align);
      places_[i] = {Space::kShared, context_.shared_base + shared_bytes_};
      shared_bytes_ += v.bytes;
    } else if (v.space == Space::kLocal ||
               (v.space == Space::kParam &&
                i >= function_.params.size() + function_.returns.size())) {
      local_bytes_ = align_up(local_bytes_, v.align);
      places_[i] = {Space::kLocal, local_bytes_};
      local_bytes_ += v.bytes;
    } else if (v.space == Space::kGlobal || v.space == Space::kConst) {
      fail(fmt::format("variable '{}': .global and .const variables belong outside of functions",
                       v.name));
      return false;
    }
    if (local_bytes_ >= (uint64_t{1} << 30) || shared_bytes_ >= (uint64_t{1} << 30)) {
      fail(fmt::format("variable '{}' is too big", v.name));
      return false;
    }
  }
  return true;
}

OperandRef Lowering::allocate(unsigned bytes) {
  const uint32_t offset = frame_bytes_;
  frame_bytes_ += (kLanes * bytes + 63) / 64 * 64;
  return operand_ref(kFrameArea, offset);
}

OperandRef Lowering::register_ref(uint32_t index) {
  OperandRef& ref = registers_[index];
  if (ref != kNoOperand) return ref;
  const Type type = function_.registers[index].type;
  if (type == Type::kPred) {
    if (predicates_left_ == 0) {
      predicate_line_ = allocate(2);
      predicates_left_ = 16;
    }
    ref = predicate_line_ + 4 * (16 - predicates_left_--);
  } else {
    ref = allocate(ptx::register_bytes(type));
  }
  return ref;
}

OperandRef Lowering::temp(unsigned bytes) {
  std::vector<OperandRef>& pool = temps_[bytes];
  size_t& used = temps_used_[bytes];
  if (used == pool.size()) pool.push_back(allocate(bytes));
  return pool[used++];
}

OperandRef Lowering::temp_predicate() { return temp(2); }

void Lowering::expect_operands(size_t least, size_t most) {
  if (dry_) {
    dry_operands_ = least;
    return;
  }
  const size_t count = operand_count();
  if (count < least || count > most) {
    fail(fmt::format(
        "{} operands, expected {}", count,
        least == most ? fmt::format("{}", least) : fmt::format("{} to {}", least, most)));
  }
}

const ptx::Operand& Lowering::operand(size_t i) const {
  static const Operand none;
  return i < current_->operands.size() ? current_->operands[i] : none;
}

unsigned Lowering::register_size(const Operand& o) const {
  if (o.kind != Operand::Kind::kRegister) return 0;
  const Type type = function_.registers[o.index].type;
  return type == Type::kPred ? 0 : ptx::register_bytes(type);
}

std::optional<uint64_t> Lowering::constant_of(const Operand& o) const {
  if (o.kind != Operand::Kind::kInteger) return std::nullopt;
  return o.value;
}

OperandRef Lowering::resize(OperandRef ref, unsigned from, unsigned to, bool is_signed) {
  if (from == to) return ref;
  const OperandRef out = temp(to);
  const char sign = is_signed ? 's' : 'u';
  emit(fmt::format("cvt.{}{}.{}{}", sign, to * 8, sign, from * 8), out, ref);
  return out;
}

OperandRef Lowering::special(std::string_view name, Type type) {
  const unsigned bytes = ptx::register_bytes(type);
  OperandRef ref = kNoOperand;
  for (const SpecialValue& s : kSpecials) {
    if (s.name == name) ref = operand_ref(s.area, s.index * kValueBytes);
  }
  const auto constant = [&](uint64_t value) { return context_.constants->value(value, 4); };
  if (std::find(std::begin(kZeros), std::end(kZeros), name) != std::end(kZeros)) ref = constant(0);
  if (std::find(std::begin(kOnes), std::end(kOnes), name) != std::end(kOnes)) ref = constant(1);
  if (name == "%is_explicit_cluster") {
    return operand_ref(kBlockArea, kExplicitCluster * kValueBytes);
  }
  if (name == "%current_graph_exec")
    return resize(operand_ref(kBlockArea, kCurrentGraph * kValueBytes), 8, bytes, false);
  if (ref == kNoOperand && name.starts_with("%envreg")) ref = constant(0);
  if (ref == kNoOperand && name.starts_with("%pm")) ref = constant(0);
  if (name.starts_with("%lanemask_")) {
    // 1 << laneid and what follows from it.
    const OperandRef bit = temp(4), result = temp(4);
    emit("shl.32", bit, constant(1), operand_ref(kWarpArea, kLaneId * kValueBytes));
    const std::string_view which = name.substr(10);
    ref = result;
    if (which == "eq")
      ref = bit;
    else if (which == "lt")
      emit("sub.32", result, bit, constant(1));
    else if (which == "le")
      emit("sub.32", result, bit, constant(1)), emit("or.32", result, result, bit);
    else if (which == "ge")
      emit("neg.32", result, bit);
    else if (which == "gt")
      emit("neg.32", result, bit), emit("xor.32", result, result, bit);
    else
      ref = kNoOperand;
  }
  if (name == "%clock64" || name == "%globaltimer") {
    ref = temp(8);
    emit(name == "%clock64" ? "clock.64" : "globaltimer.64", ref);
    return resize(ref, 8, bytes, false);
  }
  if (name == "%clock" || name == "%clock_hi" || name == "%globaltimer_lo" ||
      name == "%globaltimer_hi") {
    ref = temp(4);
    emit(name == "%clock"            ? "clock.32"
         : name == "%clock_hi"       ? "clock.hi.32"
         : name == "%globaltimer_lo" ? "globaltimer.32"
                                     : "globaltimer.hi.32",
         ref);
  }
  if (ref == kNoOperand) {
    refuse(fmt::format("unknown register '{}'", name));
    return operand_ref(kConstArea, 0);
  }
  return resize(ref, 4, bytes, false);
}

// The value of a variable's or function's name: its address in its own space.
OperandRef Lowering::address_value(const Operand& o, unsigned bytes) {
  const auto constant = [&](uint64_t value) { return context_.constants->value(value, bytes); };
  if (bytes != 4 && bytes != 8) {
    fail(fmt::format("the address of '{}' needs a 32- or 64-bit register", o.name));
    return operand_ref(kConstArea, 0);
  }
  if (o.kind == Operand::Kind::kVariable) {
    const Place& place = places_[o.index];
    if (place.space == Space::kLocal) {
      const OperandRef out = temp(bytes);
      emit(size_key("local.address", bytes), out).imm = place.offset + o.value;
      return out;
    }
    return constant(place.offset + o.value);
  }
  const auto found = context_.symbols->find(o.name);
  if (found == context_.symbols->end()) {
    unresolved(o.name);
    return operand_ref(kConstArea, 0);
  }
  const Symbol& symbol = found->second;
  switch (symbol.kind) {
    case Symbol::Kind::kFunction:
      return constant(kFunctionWindow + 16 * symbol.value + o.value);
    case Symbol::Kind::kDynamicShared: {
      OperandRef base = operand_ref(kBlockArea, kDynamicBase * kValueBytes);
      base = resize(base, 4, bytes, false);
      if (o.value == 0) return base;
      const OperandRef out = temp(bytes);
      emit(size_key("add", bytes), out, base, constant(o.value));
      return out;
    }
    default:
      return constant(symbol.value + o.value);
  }
}

OperandRef Lowering::source(const Operand& o, Type type) {
  const unsigned bytes = ptx::register_bytes(type);
  const OperandRef harmless = operand_ref(kConstArea, 0);
  if (dry_) return harmless;
  if (!o.part.empty() && current_->opcode[0] != 'v') {
    fail(fmt::format("part .{} of a register", o.part));
    return harmless;
  }
  if (o.negative || o.negated) {
    fail(fmt::format("a sign before '{}'", o.name));
    return harmless;
  }
  switch (o.kind) {
    case Operand::Kind::kRegister: {
      const Type actual = function_.registers[o.index].type;
      if (actual == Type::kPred || ptx::register_bytes(actual) != bytes) {
        fail(fmt::format("register '{}' is .{}, expected {} bits", o.name, ptx::type_name(actual),
                         bytes * 8));
        return harmless;
      }
      return register_ref(o.index);
    }
    case Operand::Kind::kInteger:
    case Operand::Kind::kFloat: {
      uint64_t bits = 0;
      if (!constant_bits_of(o, type, bits)) {
        fail(fmt::format("a constant does not fit .{}", ptx::type_name(type)));
        return harmless;
      }
      const uint64_t high = bytes == 16 && o.kind == Operand::Kind::kInteger && !o.is_unsigned &&
                                    static_cast<int64_t>(bits) < 0
                                ? ~uint64_t{0}
                                : 0;
      return context_.constants->value(bits, bytes, high);
    }
    case Operand::Kind::kSpecial:
      return special(o.name, type);
    case Operand::Kind::kVariable:
    case Operand::Kind::kSymbol:
      return address_value(o, bytes);
    default:
      break;
  }
  fail("an operand is not a value");
  return harmless;
}

OperandRef Lowering::source_wide(const Operand& o, Type type) {
  const unsigned have = register_size(o), want = ptx::register_bytes(type);
  if (dry_ || have <= want) return source(o, type);
  return resize(register_ref(o.index), have, want, false);
}

OperandRef Lowering::source_predicate(const Operand& o, bool& inverted) {
  inverted = o.negated;
  if (dry_) return operand_ref(kConstArea, 0);
  if (o.kind == Operand::Kind::kInteger) return context_.constants->predicate(o.value != 0);
  if (o.kind == Operand::Kind::kSpecial) return special(o.name, Type::kPred);
  if (o.kind == Operand::Kind::kRegister && function_.registers[o.index].type == Type::kPred) {
    return register_ref(o.index);
  }
  fail(fmt::format("'{}' is not {}", o.name, word_of(true)));
  return operand_ref(kConstArea, 0);
}

OperandRef Lowering::destination(const Operand& o, Type type) {
  const std::string_view op = current_->opcode;
  if (o.pair && op != "shfl" && op != "lop3" && op != "match" && op != "elect") {
    fail("a second destination");
  }
  if (!o.part.empty() && op[0] != 'v') fail(fmt::format("part .{} of a register", o.part));
  const unsigned bytes = ptx::register_bytes(type);
  if (dry_ || o.kind == Operand::Kind::kSink) return temp(bytes);
  if (o.kind == Operand::Kind::kRegister && !o.negated && !o.negative) {
    const Type actual = function_.registers[o.index].type;
    if (actual != Type::kPred && ptx::register_bytes(actual) == bytes) return register_ref(o.index);
    fail(fmt::format("register '{}' is .{}, expected {} bits", o.name, ptx::type_name(actual),
                     bytes * 8));
  } else {
    fail("the destination is not a register");
  }
  return temp(bytes);
}

OperandRef Lowering::destination_predicate(const Operand& o) {
  if (dry_ || o.kind == Operand::Kind::kSink) return temp_predicate();
  if (o.kind == Operand::Kind::kRegister && function_.registers[o.index].type == Type::kPred) {
    return register_ref(o.index);
  }
  fail(fmt::format("'{}' is not {}", o.name, word_of(true)));
  return temp_predicate();
}

}  // namespace fargpu::sim

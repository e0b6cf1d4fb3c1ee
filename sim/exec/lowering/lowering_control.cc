// Branches, calls, barriers and the operations of whole warps; and the table of all instructions.
#include <fmt/core.h>

#include <algorithm>

#include "sim/exec/lowering/lowering.h"
#include "sim/exec/warp_op.h"

namespace fargpu::sim {

using ptx::Space;
using ptx::Type;

// A branch evaluates its guard itself: the guard says which lanes take it.
void Lowering::branch_guard(Instr& in) {
  ignore_guard_ = true;
  in.guard = kNoOperand;
  if (!current_->guarded) return;
  in.a = dry_ ? operand_ref(kConstArea, 0) : register_ref(current_->guard);
  set_predicate_flag(in, current_->guard_negated, kInvertA);
}

void Lowering::lower_bra(Modifiers& mods) {
  mods.take("uni");
  done(mods);
  expect_operands(1, 1);
  if (dry_) return static_cast<void>(emit("bra"));
  const Operand& target = operand(0);
  if (target.kind != Operand::Kind::kLabel || !function_.labels[target.index].targets.empty()) {
    return fail("the target is not a label");
  }
  const auto position = static_cast<uint32_t>(program_.code.size());
  Instr& in = emit(current_->guarded ? "bra.if" : "bra");
  branch_guard(in);
  in.join = kNoJoin;
  target_patches_.push_back({position, flow_.block_of[function_.labels[target.index].position]});
  const uint32_t join = flow_.blocks[flow_.block_of[current_index_]].post_dominator;
  if (join != ptx::BasicBlock::kNone) join_patches_.push_back({position, join});
}

void Lowering::lower_brx(Modifiers& mods) {
  const bool idx = mods.take("idx");
  mods.take("uni");
  done(mods);
  if (!idx) return refuse("no such branch");
  expect_operands(2, 2);
  const OperandRef index = source(0, Type::kU32);
  if (dry_) return static_cast<void>(emit("brx"));
  const Operand& list = operand(1);
  if (list.kind != Operand::Kind::kLabel || function_.labels[list.index].targets.empty()) {
    return fail("the targets are not a .branchtargets list");
  }
  std::vector<uint32_t> table;
  for (const uint32_t label : function_.labels[list.index].targets) {
    if (!function_.labels[label].defined) return fail("a target is not a label");
    table.push_back(flow_.block_of[function_.labels[label].position]);
  }
  const auto position = static_cast<uint32_t>(program_.code.size());
  Instr& in = emit("brx");
  in.b = index;
  branch_guard(in);
  in.imm = program_.branch_tables.size();
  in.join = kNoJoin;
  table_patches_.push_back(static_cast<uint32_t>(program_.branch_tables.size()));
  program_.branch_tables.push_back(std::move(table));
  const uint32_t join = flow_.blocks[flow_.block_of[current_index_]].post_dominator;
  if (join != ptx::BasicBlock::kNone) join_patches_.push_back({position, join});
}

// The values in the parentheses of a call: names of .param variables of the caller.
void Lowering::add_call_values(const Operand& tuple, bool is_return,
                               std::vector<CallSite::Copy>& copies) {
  for (const Operand& o : tuple.parts) {
    if (o.kind == Operand::Kind::kVariable && places_[o.index].space == Space::kLocal &&
        o.value == 0) {
      copies.push_back({static_cast<uint32_t>(places_[o.index].offset),
                        static_cast<uint32_t>(function_.variables[o.index].bytes)});
      continue;
    }
    if (!is_return && o.kind == Operand::Kind::kVariable &&
        places_[o.index].space == Space::kParam) {
      fail("a kernel parameter cannot be passed on directly");
      return;
    }
    fail(is_return ? "a result is not a .param variable" : "an argument is not a .param variable");
    return;
  }
}

void Lowering::lower_call(Modifiers& mods) {
  mods.take("uni");
  done(mods);
  if (dry_) return static_cast<void>(emit("call"));
  CallSite site;
  size_t at = 0;
  const std::vector<Operand>& operands = current_->operands;
  if (at < operands.size() && operands[at].kind == Operand::Kind::kTuple)
    add_call_values(operands[at++], true, site.returns);
  if (at >= operands.size()) return fail("no function to call");
  const Operand& callee = operands[at++];
  if (at < operands.size() && operands[at].kind == Operand::Kind::kTuple)
    add_call_values(operands[at++], false, site.arguments);
  const Operand* prototype = at < operands.size() ? &operands[at++] : nullptr;
  if (at != operands.size()) return fail("too many operands");
  if (failed()) return;
  const auto index = static_cast<uint64_t>(program_.call_sites.size());
  program_.call_sites.push_back(std::move(site));
  if (callee.kind == Operand::Kind::kRegister) {
    if (prototype == nullptr) return fail("an indirect call needs a prototype");
    const OperandRef address = source(callee, Type::kU64);
    Instr& in = emit("call.indirect");
    in.a = address;
    in.imm = index;
    return;
  }
  const auto found = callee.kind == Operand::Kind::kSymbol ? context_.symbols->find(callee.name)
                                                           : context_.symbols->end();
  if (callee.kind == Operand::Kind::kSymbol && found == context_.symbols->end()) {
    return unresolved(callee.name);
  }
  if (found == context_.symbols->end() || found->second.kind != Symbol::Kind::kFunction) {
    return fail(fmt::format("'{}' is not a function", callee.name));
  }
  const FunctionCode& function = program_.functions[found->second.value];
  if (function.is_entry) return fail("a kernel cannot be called");
  const CallSite& placed = program_.call_sites[index];
  const auto matches = [](const auto& have, const auto& want) {
    return std::equal(have.begin(), have.end(), want.begin(), want.end(),
                      [](const auto& a, const auto& b) { return a.bytes == b.bytes; });
  };
  if (!matches(placed.arguments, function.params) || !matches(placed.returns, function.returns)) {
    return fail(fmt::format("the arguments do not fit function '{}'", function.name));
  }
  Instr& in = emit("call");
  in.target = static_cast<uint32_t>(found->second.value);
  in.imm = index;
}

void Lowering::lower_ret(Modifiers& mods) {
  mods.take("uni");
  done(mods);
  expect_operands(0, 0);
  emit("ret").target = function_index_;
}

void Lowering::lower_exit(Modifiers& mods) {
  done(mods);
  expect_operands(0, 0);
  emit("exit");
}

// trap, brkpt: without a debugger both end the grid.
void Lowering::lower_trap(Modifiers& mods) {
  done(mods);
  expect_operands(0, 0);
  emit("trap");
}

// bar, barrier.
void Lowering::lower_bar(Modifiers& mods) {
  if (mods.take("cluster")) return lower_cluster_barrier(mods);
  if (mods.take("warp")) {
    if (!mods.take("sync")) return refuse("no such barrier");
    done(mods);
    expect_operands(1, 1);
    const OperandRef members = source(0, Type::kB32);
    Instr& in = emit("warp");
    in.sub = static_cast<uint8_t>(WarpOp::kBarrier);
    in.d = members;
    in.target = kNoOperand;
    return;
  }
  mods.take("cta");
  const std::string_view action = mods.take_one("sync arrive red");
  mods.take("aligned");
  if (action.empty()) return refuse("no such barrier");
  const std::string_view reduction =
      action == "red" ? mods.take_one("popc and or") : std::string_view{};
  const Type type = action == "red" ? mods.take_type() : Type::kNone;
  done(mods);
  if (action != "red") {
    expect_operands(action == "arrive" ? 2 : 1, 2);
    const OperandRef id = source(0, Type::kU32);
    const OperandRef count = operand_count() > 1 ? source(1, Type::kU32) : kNoOperand;
    Instr& in = emit("barrier", kNoOperand, id, count);
    in.sub = action == "arrive" ? 1 : 0;
    return;
  }
  const bool counts = reduction == "popc";
  if (reduction.empty() || type != (counts ? Type::kU32 : Type::kPred))
    return refuse("no such reduction");
  expect_operands(3, 4);
  const OperandRef id = source(1, Type::kU32);
  const OperandRef count = operand_count() > 3 ? source(2, Type::kU32) : kNoOperand;
  bool inverted = false;
  const OperandRef p = source_predicate(operand(operand_count() - 1), inverted);
  const OperandRef d = counts ? destination(0, Type::kU32) : destination_predicate(operand(0));
  Instr& in = emit("barrier", d, id, count, p);
  in.sub = counts ? 2 : reduction == "and" ? 3 : 4;
  set_predicate_flag(in, inverted, kInvertC);
}

// Registers are not scarce here.
void Lowering::lower_setmaxnreg(Modifiers& mods) {
  constexpr uint64_t kFewest = 24, kMost = 256, kStep = 8;
  const bool action = !mods.take_one("inc dec").empty(), sync = mods.take("sync"),
             aligned = mods.take("aligned");
  const Type type = mods.take_type();
  done(mods);
  if (!action || !sync || !aligned || type != Type::kU32) return refuse("no such form");
  expect_operands(1, 1);
  if (failed()) return;
  const uint64_t count = dry_ ? kFewest : constant_of(operand(0)).value_or(0);
  if (count < kFewest || count > kMost || count % kStep != 0)
    return fail("expected a number of registers: a multiple of 8 from 24 to 256");
  emit("nop");
}

void Lowering::lower_shfl(Modifiers& mods) {
  const bool sync = mods.take("sync");
  const std::string_view mode = mods.take_one("up down bfly idx");
  const Type type = mods.take_type();
  done(mods);
  if (mode.empty() || type != Type::kB32) return refuse("no such variant");
  expect_operands(sync ? 5 : 4, sync ? 5 : 4);
  const OperandRef a = source(1, type), b = source(2, type), c = source(3, type);
  const OperandRef members = sync ? source(4, type) : kNoOperand;
  const OperandRef d = destination(0, type);
  const OperandRef p = operand(0).pair ? destination_predicate(*operand(0).pair) : kNoOperand;
  Instr& in = emit("warp", d, a, b, c);
  in.d = members;
  in.target = p;
  in.sub = static_cast<uint8_t>(mode == "up"     ? WarpOp::kShflUp
                                : mode == "down" ? WarpOp::kShflDown
                                : mode == "bfly" ? WarpOp::kShflBfly
                                                 : WarpOp::kShflIdx);
}

void Lowering::lower_vote(Modifiers& mods) {
  const bool sync = mods.take("sync");
  const std::string_view mode = mods.take_one("all any uni ballot");
  const Type type = mods.take_type();
  done(mods);
  const bool ballot = mode == "ballot";
  if (mode.empty() || type != (ballot ? Type::kB32 : Type::kPred)) return refuse("no such variant");
  expect_operands(sync ? 3 : 2, sync ? 3 : 2);
  bool inverted = false;
  const OperandRef a = source_predicate(operand(1), inverted);
  const OperandRef members = sync ? source(2, Type::kB32) : kNoOperand;
  const OperandRef d = ballot ? destination(0, type) : destination_predicate(operand(0));
  Instr& in = emit("warp", d, a);
  in.d = members;
  in.target = kNoOperand;
  set_predicate_flag(in, inverted, kInvertA);
  in.sub = static_cast<uint8_t>(mode == "all"   ? WarpOp::kVoteAll
                                : mode == "any" ? WarpOp::kVoteAny
                                : mode == "uni" ? WarpOp::kVoteUni
                                                : WarpOp::kVoteBallot);
}

void Lowering::lower_match(Modifiers& mods) {
  const std::string_view mode = mods.take_one("any all");
  const bool sync = mods.take("sync");
  const Type type = mods.take_type();
  done(mods);
  if (mode.empty() || !sync || (type != Type::kB32 && type != Type::kB64))
    return refuse("no such variant");
  expect_operands(3, 3);
  const OperandRef a = source(1, type), members = source(2, Type::kB32);
  const OperandRef d = destination(0, Type::kB32);
  const OperandRef p =
      mode == "all" && operand(0).pair ? destination_predicate(*operand(0).pair) : kNoOperand;
  Instr& in = emit("warp", d, a);
  in.d = members;
  in.target = p;
  in.size = static_cast<uint8_t>(ptx::type_bytes(type));
  in.sub = static_cast<uint8_t>(mode == "any" ? WarpOp::kMatchAny : WarpOp::kMatchAll);
}

void Lowering::lower_redux(Modifiers& mods) {
  const bool sync = mods.take("sync");
  const std::string_view mode = mods.take_one("add min max and or xor");
  const Type type = mods.take_type();
  done(mods);
  const bool logic = mode == "and" || mode == "or" || mode == "xor";
  const bool fits = logic ? type == Type::kB32 : type == Type::kU32 || type == Type::kS32;
  if (mode.empty() || !sync || !fits) return refuse("no such variant");
  expect_operands(3, 3);
  const OperandRef a = source(1, type), members = source(2, Type::kB32);
  Instr& in = emit("warp", destination(0, type), a);
  in.d = members;
  in.target = kNoOperand;
  const bool is_signed = type == Type::kS32;
  in.sub =
      static_cast<uint8_t>(mode == "add"   ? WarpOp::kReduxAdd
                           : mode == "min" ? (is_signed ? WarpOp::kReduxMinS : WarpOp::kReduxMinU)
                           : mode == "max" ? (is_signed ? WarpOp::kReduxMaxS : WarpOp::kReduxMaxU)
                           : mode == "and" ? WarpOp::kReduxAnd
                           : mode == "or"  ? WarpOp::kReduxOr
                                           : WarpOp::kReduxXor);
}

void Lowering::lower_activemask(Modifiers& mods) {
  const Type type = mods.take_type();
  done(mods);
  if (type != Type::kB32) return refuse("no such type");
  expect_operands(1, 1);
  emit("activemask", destination(0, type));
}

void Lowering::lower_elect(Modifiers& mods) {
  const bool sync = mods.take("sync");
  done(mods);
  if (!sync) return refuse("needs .sync");
  expect_operands(2, 2);
  const OperandRef members = source(1, Type::kB32), d = destination(0, Type::kB32);
  const OperandRef p = operand(0).pair ? destination_predicate(*operand(0).pair) : kNoOperand;
  Instr& in = emit("warp", d);
  in.d = members;
  in.target = p;
  in.sub = static_cast<uint8_t>(WarpOp::kElect);
}

void Lowering::lower_nanosleep(Modifiers& mods) {
  const Type type = mods.take_type();
  done(mods);
  if (type != Type::kU32) return refuse("no such type");
  expect_operands(1, 1);
  source(0, type);
  emit("nanosleep");
}

void Lowering::lower_refused(Modifiers& mods) { refuse("the simulated GPU has no unit for it"); }

namespace {
constexpr std::string_view kRefusedOpcodes[] = {
    "wgmma",     "tcgen05",      "istypep",
    "multimem",  "tensormap",    "alloca",
    "stacksave", "stackrestore", "clusterlaunchcontrol"};
}  // namespace

const std::unordered_map<std::string_view, Lowering::Method>& Lowering::methods() {
  using L = Lowering;
  static const std::unordered_map<std::string_view, Method> table = {
      {"add", &L::lower_add_sub},
      {"sub", &L::lower_add_sub},
      {"addc", &L::lower_carry},
      {"subc", &L::lower_carry},
      {"mul", &L::lower_mul},
      {"mad", &L::lower_mad},
      {"madc", &L::lower_mad},
      {"fma", &L::lower_fma},
      {"div", &L::lower_div},
      {"rem", &L::lower_rem},
      {"abs", &L::lower_abs_neg},
      {"neg", &L::lower_abs_neg},
      {"min", &L::lower_min_max},
      {"max", &L::lower_min_max},
      {"sad", &L::lower_sad},
      {"mul24", &L::lower_mul24},
      {"mad24", &L::lower_mul24},
      {"rcp", &L::lower_unary_float},
      {"sqrt", &L::lower_unary_float},
      {"rsqrt", &L::lower_unary_float},
      {"sin", &L::lower_approximation},
      {"cos", &L::lower_approximation},
      {"lg2", &L::lower_approximation},
      {"ex2", &L::lower_approximation},
      {"tanh", &L::lower_approximation},
      {"testp", &L::lower_testp},
      {"copysign", &L::lower_copysign},
      {"dp4a", &L::lower_dot},
      {"dp2a", &L::lower_dot},
      {"and", &L::lower_logic},
      {"or", &L::lower_logic},
      {"xor", &L::lower_logic},
      {"not", &L::lower_not},
      {"cnot", &L::lower_not},
      {"shl", &L::lower_shift},
      {"shr", &L::lower_shift},
      {"shf", &L::lower_shf},
      {"lop3", &L::lower_lop3},
      {"popc", &L::lower_count},
      {"clz", &L::lower_count},
      {"brev", &L::lower_count},
      {"bfind", &L::lower_bfind},
      {"bfe", &L::lower_bfe},
      {"bfi", &L::lower_bfi},
      {"bmsk", &L::lower_bmsk},
      {"szext", &L::lower_szext},
      {"fns", &L::lower_fns},
      {"prmt", &L::lower_prmt},
      {"setp", &L::lower_setp},
      {"set", &L::lower_set},
      {"selp", &L::lower_selp},
      {"slct", &L::lower_slct},
      {"mov", &L::lower_mov},
      {"cvt", &L::lower_cvt},
      {"ld", &L::lower_load},
      {"ldu", &L::lower_load},
      {"st", &L::lower_store},
      {"cvta", &L::lower_cvta},
      {"isspacep", &L::lower_isspacep},
      {"atom", &L::lower_atom},
      {"red", &L::lower_atom},
      {"cp", &L::lower_cp},
      {"prefetch", &L::lower_hint},
      {"prefetchu", &L::lower_hint},
      {"applypriority", &L::lower_hint},
      {"discard", &L::lower_hint},
      {"pmevent", &L::lower_hint},
      {"griddepcontrol", &L::lower_hint},
      {"createpolicy", &L::lower_createpolicy},
      {"membar", &L::lower_fence},
      {"fence", &L::lower_fence},
      {"bra", &L::lower_bra},
      {"brx", &L::lower_brx},
      {"call", &L::lower_call},
      {"ret", &L::lower_ret},
      {"exit", &L::lower_exit},
      {"trap", &L::lower_trap},
      {"brkpt", &L::lower_trap},
      {"bar", &L::lower_bar},
      {"barrier", &L::lower_bar},
      {"mbarrier", &L::lower_mbarrier},
      {"mapa", &L::lower_cluster_address},
      {"getctarank", &L::lower_cluster_address},
      {"setmaxnreg", &L::lower_setmaxnreg},
      {"shfl", &L::lower_shfl},
      {"vote", &L::lower_vote},
      {"match", &L::lower_match},
      {"redux", &L::lower_redux},
      {"activemask", &L::lower_activemask},
      {"elect", &L::lower_elect},
      {"nanosleep", &L::lower_nanosleep},
      {"mma", &L::lower_mma},
      {"wmma", &L::lower_wmma},
      {"ldmatrix", &L::lower_tiles},
      {"stmatrix", &L::lower_tiles},
      {"movmatrix", &L::lower_tiles},
      {"tex", &L::lower_tex},
      {"tld4", &L::lower_tld4},
      {"txq", &L::lower_image_query},
      {"suq", &L::lower_image_query},
      {"suld", &L::lower_surface},
      {"sust", &L::lower_surface},
      {"sured", &L::lower_surface},
      {"vadd", &L::lower_video},
      {"vsub", &L::lower_video},
      {"vabsdiff", &L::lower_video},
      {"vmin", &L::lower_video},
      {"vmax", &L::lower_video},
      {"vshl", &L::lower_video},
      {"vshr", &L::lower_video},
      {"vmad", &L::lower_video},
      {"vset", &L::lower_video},
      {"vadd2", &L::lower_video},
      {"vsub2", &L::lower_video},
      {"vavrg2", &L::lower_video},
      {"vabsdiff2", &L::lower_video},
      {"vmin2", &L::lower_video},
      {"vmax2", &L::lower_video},
      {"vset2", &L::lower_video},
      {"vadd4", &L::lower_video},
      {"vsub4", &L::lower_video},
      {"vavrg4", &L::lower_video},
      {"vabsdiff4", &L::lower_video},
      {"vmin4", &L::lower_video},
      {"vmax4", &L::lower_video},
      {"vset4", &L::lower_video},
  };
  static const std::unordered_map<std::string_view, Method> all = [] {
    auto both = table;
    for (const std::string_view name : kRefusedOpcodes) both.emplace(name, &L::lower_refused);
    return both;
  }();
  return all;
}

bool is_refused_group(std::string_view opcode, const std::vector<std::string_view>& modifiers) {
  if (std::find(std::begin(kRefusedOpcodes), std::end(kRefusedOpcodes), opcode) !=
      std::end(kRefusedOpcodes))
    return true;
  const auto has = [&](std::string_view word) {
    return std::find(modifiers.begin(), modifiers.end(), word) != modifiers.end();
  };
  // A form of an instruction that otherwise runs.
  return opcode == "cp" && has("reduce");
}

}  // namespace fargpu::sim

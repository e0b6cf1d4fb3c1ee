// Control flow: branches, joins, calls, returns, exits, traps and block barriers.
#include <algorithm>
#include <bit>
#include <cstring>

#include "sim/exec/builtins.h"
#include "sim/exec/memory.h"
#include "sim/exec/ops/ops.h"
#include "sim/exec/ops/scheduler.h"
#include "sim/exec/program_code.h"

namespace fargpu::sim {
namespace {

void jump(Exec& x, uint32_t target) {
  if (target < x.path.pc && (--x.budget <= 0 || x.spins >= kSpinLimit)) x.event = Event::kYield;
  x.path.pc = target;
}

// The join at which lanes of the running path meet again, made now unless they already wait for it.
int32_t join_for(Exec& x, uint32_t pc) {
  if (pc == kNoJoin) return x.path.join;
  if (x.path.join >= 0) {
    const Join& current = x.warp->joins[static_cast<size_t>(x.path.join)];
    if (current.pc == pc && current.frame == x.path.frame && current.site == nullptr) {
      return x.path.join;
    }
  }
  return push_join(*x.warp, {.pc = pc,
                             .frame = x.path.frame,
                             .local = x.path.local,
                             .expected = x.path.mask,
                             .parent = x.path.join});
}

// One of several paths out of a branch: arrives at the join, or is left ready.
void leave(Exec& x, uint32_t mask, uint32_t pc, int32_t join, uint32_t join_pc) {
  if (pc == join_pc) {
    arrive_at_join(*x.warp, join, mask);
    return;
  }
  Path path = x.path;
  path.mask = mask;
  path.pc = pc;
  path.join = join;
  x.warp->ready.push_back(path);
}

void diverge(Exec& x, const Instr& in, uint32_t taken, uint32_t rest) {
  const int32_t join = join_for(x, in.join);
  const uint32_t next = x.path.pc;
  if (in.target == in.join) {  // taken lanes skip to the join; the rest continues
    arrive_at_join(*x.warp, join, taken);
    if (next == in.join) {
      arrive_at_join(*x.warp, join, rest);
      x.event = Event::kEnded;
      return;
    }
    x.path.mask = rest;
    x.path.join = join;
    return;
  }
  leave(x, rest, next, join, in.join);
  x.path.mask = taken;
  x.path.join = join;
  jump(x, in.target);
}

void branch(Exec& x, const Instr& in) { jump(x, in.target); }

void branch_if(Exec& x, const Instr& in) {
  const uint32_t taken = x.path.mask & x.predicate(in.a, (in.flags & kInvertA) != 0);
  if (taken == 0) return;
  const uint32_t rest = x.path.mask & ~taken;
  if (rest == 0)
    jump(x, in.target);
  else
    diverge(x, in, taken, rest);
}

// in.b: the index; in.imm: the table. Lanes with the same target go together.
void branch_indexed(Exec& x, const Instr& in) {
  const std::vector<uint32_t>& targets = x.grid->program->branch_tables[in.imm];
  const uint32_t* index = x.at<uint32_t>(in.b);
  uint32_t mask = x.path.mask;
  if (in.a != kNoOperand) mask &= x.predicate(in.a, (in.flags & kInvertA) != 0);
  if (mask == 0) return;
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((mask >> l & 1u) != 0 && index[l] >= targets.size()) {
      return raise_fault(x, in, Fault::Kind::kInvalidProgramCounter, l, index[l], 0);
    }
  }
  const uint32_t first = targets[index[std::countr_zero(mask)]];
  const auto group_of = [&](uint32_t lanes, uint32_t target) {
    uint32_t group = 0;
    for (uint32_t l = 0; l < kLanes; ++l) {
      if ((lanes >> l & 1u) != 0 && targets[index[l]] == target) group |= 1u << l;
    }
    return group;
  };
  const uint32_t group = group_of(mask, first);
  if (group == x.path.mask) return jump(x, first);
  const int32_t join = join_for(x, in.join);
  const uint32_t rest = x.path.mask & ~mask;
  if (rest != 0) leave(x, rest, x.path.pc, join, in.join);
  for (uint32_t left = mask; left != 0;) {
    const uint32_t target = targets[index[std::countr_zero(left)]];
    const uint32_t lanes = group_of(left, target);
    leave(x, lanes, target, join, in.join);
    left &= ~lanes;
  }
  x.event = Event::kEnded;
}

void join(Exec& x, const Instr& in) {
  if (x.path.join < 0) return;
  Join& join = x.warp->joins[static_cast<size_t>(x.path.join)];
  if (join.pc != x.path.pc - 1 || join.frame != x.path.frame || join.site != nullptr) return;
  if (join.arrived == 0 && join.expected == x.path.mask) {  // no other lane comes: continue at once
    const int32_t index = x.path.join;
    x.path.join = join.parent;
    join.expected = 0;
    x.warp->free_joins.push_back(index);
    --x.path.pc;  // an outer join may be here as well
    return;
  }
  arrive_at_join(*x.warp, x.path.join, x.path.mask);
  x.event = Event::kEnded;
}

void exit(Exec& x, const Instr& in) { exit_lanes(x, x.mask); }

void trap(Exec& x, const Instr& in) {
  raise_fault(x, in, Fault::Kind::kTrap, static_cast<uint32_t>(std::countr_zero(x.mask)), 0, 0);
}

void copy_values(Exec& x, uint32_t mask, uint64_t from, const std::vector<CallSite::Copy>& source,
                 uint64_t to, const std::vector<CallSite::Copy>& target) {
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((mask >> l & 1u) == 0) continue;
    uint8_t* base = local_base(x, l);
    for (size_t i = 0; i < source.size(); ++i) {
      std::memcpy(base + to + target[i].offset, base + from + source[i].offset, source[i].bytes);
    }
  }
}

bool same_sizes(const std::vector<CallSite::Copy>& a, const std::vector<CallSite::Copy>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& l, const auto& r) { return l.bytes == r.bytes; });
}

constexpr size_t kMaxRegisterStack = size_t{256} << 20;  // per warp

// Lanes `mask` of the running path enter `function`; the path they run on comes back. False after a
// fault.
bool enter(Exec& x, const Instr& in, const FunctionCode& function, const CallSite& site,
           uint32_t mask, int32_t join, Path& path) {
  const auto lane = static_cast<uint32_t>(std::countr_zero(mask));
  path = x.path;
  path.mask = mask;
  path.join = join;
  path.pc = function.entry;
  path.frame += site.frame_bytes;
  path.local += site.local_bytes;
  const uint64_t local_end = uint64_t{path.local} + function.local_bytes;
  const size_t frame_end = size_t{path.frame} + function.frame_bytes;
  if (local_end > x.grid->local_bytes || frame_end > kMaxRegisterStack) {
    raise_fault(x, in, Fault::Kind::kStackOverflow, lane, local_end, 0);
    return false;
  }
  AlignedBuffer& registers = x.warp->registers;
  if (frame_end > registers.size()) {
    if (!registers.reserve(std::max(frame_end, registers.size() * 2))) {
      raise_fault(x, in, Fault::Kind::kStackOverflow, lane, frame_end, 0);
      return false;
    }
    x.bases[kFrameArea] = registers.data() + x.path.frame;
  }
  copy_values(x, mask, x.path.local, site.arguments, path.local, function.params);
  return true;
}

void switch_to(Exec& x, const Path& path) {
  x.path = path;
  x.bases[kFrameArea] = x.warp->registers.data() + path.frame;
}

int32_t push_call_join(Exec& x, const CallSite& site) {
  return push_join(*x.warp, {.pc = x.path.pc,
                             .frame = x.path.frame,
                             .local = x.path.local,
                             .expected = x.path.mask,
                             .parent = x.path.join,
                             .site = &site});
}

void call(Exec& x, const Instr& in) {
  const FunctionCode& function = x.grid->program->functions[in.target];
  const CallSite& site = x.grid->program->call_sites[in.imm];
  if (function.builtin != Builtin::kNone) return call_builtin(x, in, function, site, x.mask);
  const int32_t join = push_call_join(x, site);
  const uint32_t rest = x.path.mask & ~x.mask;
  Path path;
  if (!enter(x, in, function, site, x.mask, join, path)) return;
  if (rest != 0) arrive_at_join(*x.warp, join, rest);
  switch_to(x, path);
  --x.budget;
}

// in.a: the function's address per lane.
void call_indirect(Exec& x, const Instr& in) {
  const ProgramCode& program = *x.grid->program;
  const CallSite& site = program.call_sites[in.imm];
  const uint64_t* address = x.at<uint64_t>(in.a);
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((x.mask >> l & 1u) == 0) continue;
    const uint64_t index = (address[l] - kFunctionWindow) / 16;
    const bool known =
        address[l] % 16 == 0 && address[l] >= kFunctionWindow && index < program.functions.size() &&
        !program.functions[index].is_entry &&
        (program.functions[index].defined || program.functions[index].builtin != Builtin::kNone);
    if (!known || !same_sizes(site.arguments, program.functions[index].params) ||
        !same_sizes(site.returns, program.functions[index].returns)) {
      return raise_fault(x, in, Fault::Kind::kInvalidProgramCounter, l, address[l], 0);
    }
  }
  uint32_t left = x.mask;
  const int32_t join = push_call_join(x, site);
  const uint32_t whole = x.mask;
  uint32_t done = x.path.mask & ~whole;  // lanes that are at the join already
  std::vector<Path> paths;
  while (left != 0) {
    const uint64_t target = address[std::countr_zero(left)];
    uint32_t lanes = 0;
    for (uint32_t l = 0; l < kLanes; ++l) {
      if ((left >> l & 1u) != 0 && address[l] == target) lanes |= 1u << l;
    }
    left &= ~lanes;
    const FunctionCode& function = program.functions[(target - kFunctionWindow) / 16];
    if (function.builtin != Builtin::kNone) {
      call_builtin(x, in, function, site, lanes);
      if (x.event == Event::kFault) return;
      done |= lanes;
      continue;
    }
    Path path;
    if (!enter(x, in, function, site, lanes, join, path)) return;
    address = x.at<uint64_t>(in.a);  // the stack may have moved
    paths.push_back(path);
  }
  if (done != 0) arrive_at_join(*x.warp, join, done);
  if (paths.empty()) {
    x.event = Event::kEnded;
    return;
  }
  for (size_t i = 1; i < paths.size(); ++i) x.warp->ready.push_back(paths[i]);
  switch_to(x, paths[0]);
  --x.budget;
}

// in.target: the function that is left.
void ret(Exec& x, const Instr& in) {
  Warp& warp = *x.warp;
  int32_t index = x.path.join;
  while (index >= 0 && warp.joins[static_cast<size_t>(index)].site == nullptr) {
    index = warp.joins[static_cast<size_t>(index)].parent;
  }
  if (index < 0) return exit_lanes(x, x.mask);
  const uint32_t lanes = x.mask;
  const FunctionCode& function = x.grid->program->functions[in.target];
  const Join join = warp.joins[static_cast<size_t>(index)];
  copy_values(x, lanes, x.path.local, function.returns, join.local, join.site->returns);
  forget_lanes(warp, x.path.join, lanes, index);
  x.path.mask &= ~lanes;
  if (join.expected == lanes) {  // all return at once: continue without the ready list
    warp.joins[static_cast<size_t>(index)].expected = 0;
    warp.free_joins.push_back(index);
    switch_to(x, {.mask = lanes,
                  .pc = join.pc,
                  .frame = join.frame,
                  .local = join.local,
                  .join = join.parent});
    return;
  }
  arrive_at_join(warp, index, lanes);
  if (x.path.mask == 0) x.event = Event::kEnded;
}

// sub: 0 sync, 1 arrive, 2 red.popc, 3 red.and, 4 red.or. a: barrier, b: threads or none, c:
// predicate.
void barrier(Exec& x, const Instr& in) {
  const auto lane = static_cast<uint32_t>(std::countr_zero(x.mask));
  const uint32_t id = x.at<uint32_t>(in.a)[lane];
  const uint32_t count = in.b == kNoOperand ? 0 : x.at<uint32_t>(in.b)[lane];
  if (id >= x.block->barriers.size() ||
      (in.b != kNoOperand && (count == 0 || count % kLanes != 0))) {
    return raise_fault(x, in, Fault::Kind::kIllegalInstruction, lane, id, 0);
  }
  Barrier& state = x.block->barriers[id];
  const auto lanes = static_cast<uint32_t>(std::popcount(x.mask));
  // Counts are in warps: a warp that has lost lanes still counts whole.
  state.arrived += count != 0 && x.mask == x.warp->live ? kLanes : lanes;
  if (count != 0) state.expected = count;
  state.in_use = true;
  if (in.sub >= 2) {
    const uint32_t p = x.predicate(in.c, (in.flags & kInvertC) != 0) & x.mask;
    state.popc += static_cast<uint32_t>(std::popcount(p));
    state.all &= p == x.mask;
    state.any |= p != 0;
  }
  if (in.sub != 1) block_lanes(x, x.mask, PathState::kBarrier, static_cast<uint8_t>(id));
  complete_barrier(x, *x.block, static_cast<uint8_t>(id));
}

}  // namespace

void add_control_ops(OpTable& table) {
  table.add("bra", branch);
  table.add("bra.if", branch_if);
  table.add("brx", branch_indexed);
  table.add("join", join);
  table.add("exit", exit);
  table.add("trap", trap);
  table.add("call", call);
  table.add("call.indirect", call_indirect);
  table.add("ret", ret);
  table.add("barrier", barrier);
}

}  // namespace fargpu::sim

// Warp-wide operations. Each has two steps: gather reads what lanes bring, apply writes what they
// get; between them the lanes of several divergent paths may have been brought together.
#include <algorithm>
#include <bit>

#include "sim/exec/matrix_op.h"
#include "sim/exec/ops/ops.h"
#include "sim/exec/ops/scheduler.h"
#include "sim/exec/program_code.h"
#include "sim/exec/warp_op.h"
#include "sim/exec/warp_sync.h"

namespace fargpu::sim {
namespace {

struct Exchange {
  uint64_t value[kLanes];
  uint32_t predicate = 0;
};

template <typename F>
void each_lane(uint32_t mask, F visit) {
  for (; mask != 0; mask &= mask - 1) visit(static_cast<uint32_t>(std::countr_zero(mask)));
}

bool is_shuffle(WarpOp op) { return op >= WarpOp::kShflUp && op <= WarpOp::kShflIdx; }
bool is_vote(WarpOp op) { return op >= WarpOp::kVoteAll && op <= WarpOp::kVoteBallot; }
bool is_match(WarpOp op) { return op == WarpOp::kMatchAny || op == WarpOp::kMatchAll; }
bool is_redux(WarpOp op) { return op >= WarpOp::kReduxAdd && op <= WarpOp::kReduxXor; }

void gather(Exec& x, const Instr& in, uint32_t mask, Exchange& exchange) {
  const auto op = static_cast<WarpOp>(in.sub);
  if (is_vote(op)) {
    const uint32_t p = x.predicate(in.a, (in.flags & kInvertA) != 0);
    exchange.predicate = (exchange.predicate & ~mask) | (p & mask);
  } else if (is_shuffle(op) || is_match(op) || is_redux(op)) {
    each_lane(mask, [&](uint32_t l) {
      exchange.value[l] = in.size == 8 ? x.at<uint64_t>(in.a)[l] : x.at<uint32_t>(in.a)[l];
    });
  }
}

uint32_t members_of(Exec& x, const Instr& in, uint32_t lane) {
  return in.d == kNoOperand ? kAllLanes : x.at<uint32_t>(in.d)[lane];
}

void shuffle(Exec& x, const Instr& in, uint32_t mask, const Exchange& exchange,
             uint32_t participants) {
  const auto op = static_cast<WarpOp>(in.sub);
  uint32_t valid = 0;
  uint32_t result[kLanes];
  const uint32_t* by = x.at<uint32_t>(in.b);
  const uint32_t* control = x.at<uint32_t>(in.c);
  each_lane(mask, [&](uint32_t l) {
    const auto lane = static_cast<int>(l);
    const int b = static_cast<int>(by[l] & 31u);
    const int clamp = static_cast<int>(control[l] & 31u);
    const int segment = static_cast<int>(control[l] >> 8 & 31u);
    const int most = (lane & segment) | (clamp & ~segment);
    int from = 0;
    bool inside = false;
    switch (op) {
      case WarpOp::kShflUp:
        from = lane - b;
        inside = from >= most;
        break;
      case WarpOp::kShflDown:
        from = lane + b;
        inside = from <= most;
        break;
      case WarpOp::kShflBfly:
        from = lane ^ b;
        inside = from <= most;
        break;
      default:
        from = (lane & segment) | (b & ~segment);
        inside = from <= most;
        break;
    }
    if (!inside) from = lane;
    // A source lane that takes no part leaves the result undefined: the own value then.
    if ((participants >> from & 1u) == 0) from = lane;
    valid |= uint32_t{inside} << l;
    result[l] = static_cast<uint32_t>(exchange.value[from]);
  });
  if (in.dst != kNoOperand) {
    uint32_t* d = x.at<uint32_t>(in.dst);
    each_lane(mask, [&](uint32_t l) { d[l] = result[l]; });
  }
  x.mask = mask;
  if (in.target != kNoOperand) x.set_predicate(in.target, valid);
}

uint32_t reduce(WarpOp op, uint32_t a, uint32_t b) {
  const auto sa = static_cast<int32_t>(a), sb = static_cast<int32_t>(b);
  switch (op) {
    case WarpOp::kReduxAdd:
      return a + b;
    case WarpOp::kReduxMinU:
      return std::min(a, b);
    case WarpOp::kReduxMaxU:
      return std::max(a, b);
    case WarpOp::kReduxMinS:
      return static_cast<uint32_t>(std::min(sa, sb));
    case WarpOp::kReduxMaxS:
      return static_cast<uint32_t>(std::max(sa, sb));
    case WarpOp::kReduxAnd:
      return a & b;
    case WarpOp::kReduxOr:
      return a | b;
    default:
      return a ^ b;
  }
}

// The lanes `group` have the same members: one result for votes, reductions and elections, one per
// lane for matches.
void apply_group(Exec& x, const Instr& in, uint32_t group, uint32_t members,
                 const Exchange& exchange) {
  const auto op = static_cast<WarpOp>(in.sub);
  const uint32_t p = exchange.predicate & members;
  x.mask = group;
  const auto write = [&](uint32_t value) {
    if (in.dst == kNoOperand) return;
    uint32_t* d = x.at<uint32_t>(in.dst);
    each_lane(group, [&](uint32_t l) { d[l] = value; });
  };
  switch (op) {
    case WarpOp::kVoteAll:
      x.set_predicate(in.dst, p == members ? kAllLanes : 0);
      return;
    case WarpOp::kVoteAny:
      x.set_predicate(in.dst, p != 0 ? kAllLanes : 0);
      return;
    case WarpOp::kVoteUni:
      x.set_predicate(in.dst, p == members || p == 0 ? kAllLanes : 0);
      return;
    case WarpOp::kVoteBallot:
      write(p);
      return;
    case WarpOp::kMatchAny: {
      uint32_t* d = x.at<uint32_t>(in.dst);
      each_lane(group, [&](uint32_t l) {
        uint32_t same = 0;
        each_lane(members, [&](uint32_t m) {
          same |= uint32_t{exchange.value[m] == exchange.value[l]} << m;
        });
        d[l] = same;
      });
      return;
    }
    case WarpOp::kMatchAll: {
      bool same = true;
      const uint64_t first = exchange.value[std::countr_zero(members)];
      each_lane(members, [&](uint32_t m) { same &= exchange.value[m] == first; });
      write(same ? members : 0);
      if (in.target != kNoOperand) x.set_predicate(in.target, same ? kAllLanes : 0);
      return;
    }
    case WarpOp::kElect: {
      const auto leader = static_cast<uint32_t>(std::countr_zero(members));
      write(leader);
      if (in.target != kNoOperand) x.set_predicate(in.target, 1u << leader);
      return;
    }
    default:
      break;
  }
  if (is_redux(op)) {
    auto total = static_cast<uint32_t>(exchange.value[std::countr_zero(members)]);
    each_lane(members & (members - 1), [&](uint32_t m) {
      total = reduce(op, total, static_cast<uint32_t>(exchange.value[m]));
    });
    write(total);
  }
}

void apply(Exec& x, const Instr& in, uint32_t mask, const Exchange& exchange,
           uint32_t participants) {
  if (mask == 0 || static_cast<WarpOp>(in.sub) == WarpOp::kBarrier) return;
  if (is_shuffle(static_cast<WarpOp>(in.sub))) return shuffle(x, in, mask, exchange, participants);
  // Masks are read before results are written: the destination may be the mask's register.
  uint32_t members[kLanes];
  each_lane(mask,
            [&](uint32_t l) { members[l] = (members_of(x, in, l) & participants) | 1u << l; });
  for (uint32_t left = mask; left != 0;) {
    const uint32_t m = members[std::countr_zero(left)];
    uint32_t group = 0;
    each_lane(left, [&](uint32_t l) { group |= uint32_t{members[l] == m} << l; });
    apply_group(x, in, group, m, exchange);
    left &= ~group;
  }
}

void warp_operation(Exec& x, const Instr& in) {
  Exchange exchange;
  const uint32_t active = x.mask;
  uint32_t complete = active;
  if (in.d != kNoOperand && active != x.warp->live) {
    each_lane(active, [&](uint32_t l) {
      if ((members_of(x, in, l) & x.warp->live & ~active) != 0) complete &= ~(1u << l);
    });
  }
  gather(x, in, active, exchange);
  apply(x, in, complete, exchange, active);
  if (complete == active) return;
  block_lanes(x, active & ~complete, PathState::kWarpSync, 0);
  complete_warp_syncs(x, *x.warp);
}

// Lanes that came apart wait for each other here.
void matrix_operation(Exec& x, const Instr& in) {
  if (x.mask == x.warp->live) return run_matrix(x, in);
  block_lanes(x, x.mask, PathState::kWarpSync, 0);
  complete_warp_syncs(x, *x.warp);
}

void activemask(Exec& x, const Instr& in) {
  uint32_t* d = x.at<uint32_t>(in.dst);
  each_lane(x.mask, [&](uint32_t l) { d[l] = x.mask; });
}

// Lanes that wait with member mask `members`, in all waiting paths.
uint32_t waiting_with(Exec& x, Warp& warp, uint32_t members) {
  const std::vector<Instr>& code = x.grid->program->code;
  uint32_t lanes = 0;
  for (const Path& path : warp.waiting) {
    if (path.state != PathState::kWarpSync) continue;
    x.bases[kFrameArea] = warp.registers.data() + path.frame;
    each_lane(path.mask, [&](uint32_t l) {
      if (members_of(x, code[path.pc], l) == members) lanes |= 1u << l;
    });
  }
  return lanes;
}

void release_group(Exec& x, Warp& warp, uint32_t group) {
  const std::vector<Instr>& code = x.grid->program->code;
  Exchange exchange;
  const auto each_path = [&](auto visit) {
    for (Path& path : warp.waiting) {
      const uint32_t lanes = path.mask & group;
      if (path.state != PathState::kWarpSync || lanes == 0) continue;
      x.bases[kFrameArea] = warp.registers.data() + path.frame;
      visit(path, lanes, code[path.pc]);
    }
  };
  const Path* first = nullptr;
  bool matrix = false, apart = false;
  each_path([&](const Path& path, uint32_t, const Instr& in) {
    if (first == nullptr) first = &path;
    matrix |= static_cast<WarpOp>(in.sub) == WarpOp::kMatrix;
    apart |= path.pc != first->pc || path.frame != first->frame;
  });
  if (matrix) {
    const Instr& in = code[first->pc];
    x.mask = group;
    if (apart) {
      return raise_fault(x, in, Fault::Kind::kIllegalInstruction,
                         static_cast<uint32_t>(std::countr_zero(group)), 0, 0,
                         "the lanes of the warp are at different instructions");
    }
    run_matrix(x, in);
    if (x.event == Event::kFault) return;
  } else {
    each_path([&](Path&, uint32_t lanes, const Instr& in) { gather(x, in, lanes, exchange); });
    each_path(
        [&](Path&, uint32_t lanes, const Instr& in) { apply(x, in, lanes, exchange, group); });
  }
  std::vector<Path> freed;
  each_path([&](Path& path, uint32_t lanes, const Instr&) {
    freed.push_back(path);
    freed.back().mask = lanes;
    ++freed.back().pc;
    path.mask &= ~lanes;
  });
  std::erase_if(warp.waiting, [](const Path& path) { return path.mask == 0; });
  for (const Path& path : freed) make_ready(warp, path);
}

}  // namespace

void complete_warp_syncs(Exec& x, Warp& warp) {
  uint8_t* const frame = x.bases[kFrameArea];
  const uint32_t mask = x.mask;
  bool again = true;
  while (again) {
    again = false;
    for (size_t i = 0; i < warp.waiting.size() && !again; ++i) {
      const Path path = warp.waiting[i];
      if (path.state != PathState::kWarpSync) continue;
      const Instr& in = x.grid->program->code[path.pc];
      for (uint32_t left = path.mask; left != 0 && !again;) {
        const auto lane = static_cast<uint32_t>(std::countr_zero(left));
        x.bases[kFrameArea] = warp.registers.data() + path.frame;
        const uint32_t members = members_of(x, in, lane);
        const uint32_t lanes = waiting_with(x, warp, members);
        if ((members & warp.live & ~lanes) == 0) {
          release_group(x, warp, lanes);
          if (x.event == Event::kFault) return;
          again = true;
        }
        left &= ~lanes;
        left &= ~(1u << lane);
      }
    }
  }
  x.bases[kFrameArea] = frame;
  x.mask = mask;
}

void write_barrier_result(Exec& x, Warp& warp, const Path& path, const Barrier& result) {
  const Instr& in = x.grid->program->code[path.pc];
  if (in.sub < 2) return;
  uint8_t* const frame = x.bases[kFrameArea];
  const uint32_t mask = x.mask;
  x.bases[kFrameArea] = warp.registers.data() + path.frame;
  x.mask = path.mask;
  if (in.sub == 2) {
    uint32_t* d = x.at<uint32_t>(in.dst);
    each_lane(path.mask, [&](uint32_t l) { d[l] = result.popc; });
  } else {
    x.set_predicate(in.dst, (in.sub == 3 ? result.all : result.any) ? kAllLanes : 0);
  }
  x.bases[kFrameArea] = frame;
  x.mask = mask;
}

void report_deadlock(Exec& x, Block& block) {
  for (size_t w = 0; w < block.warp_count; ++w) {
    Warp& warp = *block.warps[w];
    if (warp.live == 0 || warp.waiting.empty()) continue;
    const Path& path = warp.waiting.front();
    x.warp = &warp;
    x.path = path;
    const auto lane = static_cast<uint32_t>(std::countr_zero(path.mask));
    raise_fault(x, x.grid->program->code[path.pc], Fault::Kind::kDeadlock, lane, 0, 0,
                "every thread of the block waits");
    return;
  }
}

void add_warp_ops(OpTable& table) {
  table.add("warp", warp_operation);
  table.add("matrix", matrix_operation);
  table.add("activemask", activemask);
}

}  // namespace fargpu::sim

#include "sim/exec/ops/scheduler.h"

#include <algorithm>
#include <bit>

#include "sim/exec/program_code.h"
#include "sim/exec/warp_sync.h"

namespace fargpu::sim {
namespace {

constexpr int64_t kWarpSlice = 100'000;  // backward branches and calls
// A block's slice: rounds over its warps, of which one that ended in a yield costs more than one
// that ended in barriers.
constexpr int kBlockSlice = 32'000;
constexpr int kYieldedRound = 1'000;

void release_join(Warp& warp, int32_t index, bool whole) {
  Join& join = warp.joins[static_cast<size_t>(index)];
  Path path;
  path.mask = join.arrived;
  path.pc = join.pc;
  path.frame = join.frame;
  path.local = join.local;
  path.join = join.parent;
  join.expected &= ~join.arrived;
  join.arrived = 0;
  if (whole || join.expected == 0) warp.free_joins.push_back(index);
  make_ready(warp, path);
}

}  // namespace

void make_ready(Warp& warp, Path path) {
  path.state = PathState::kReady;
  // Paths at the same place under the same join are one again.
  for (Path& other : warp.ready) {
    if (other.pc == path.pc && other.frame == path.frame && other.join == path.join) {
      other.mask |= path.mask;
      return;
    }
  }
  warp.ready.push_back(path);
}

int32_t push_join(Warp& warp, const Join& join) {
  if (warp.free_joins.empty()) {
    warp.joins.push_back(join);
    return static_cast<int32_t>(warp.joins.size() - 1);
  }
  const int32_t index = warp.free_joins.back();
  warp.free_joins.pop_back();
  warp.joins[static_cast<size_t>(index)] = join;
  return index;
}

void arrive_at_join(Warp& warp, int32_t index, uint32_t mask) {
  Join& join = warp.joins[static_cast<size_t>(index)];
  join.arrived |= mask;
  if (join.arrived == join.expected) release_join(warp, index, true);
}

void forget_lanes(Warp& warp, int32_t index, uint32_t mask, int32_t until) {
  while (index != until && index >= 0) {
    Join& join = warp.joins[static_cast<size_t>(index)];
    const int32_t parent = join.parent;
    join.expected &= ~mask;
    if (join.expected == 0) {
      warp.free_joins.push_back(index);
    } else if (join.arrived == join.expected) {
      release_join(warp, index, true);
    }
    index = parent;
  }
}

bool break_joins(Warp& warp) {
  bool any = false;
  for (size_t i = 0; i < warp.joins.size(); ++i) {
    if (warp.joins[i].expected != 0 && warp.joins[i].arrived != 0) {
      release_join(warp, static_cast<int32_t>(i), false);
      any = true;
    }
  }
  return any;
}

void exit_lanes(Exec& x, uint32_t mask) {
  Warp& warp = *x.warp;
  forget_lanes(warp, x.path.join, mask, -1);
  warp.live &= ~mask;
  x.block->live -= static_cast<uint32_t>(std::popcount(mask));
  x.path.mask &= ~mask;
  if (x.path.mask == 0) x.event = Event::kEnded;
  if (!warp.waiting.empty()) complete_warp_syncs(x, warp);
  for (size_t id = 0; id < x.block->barriers.size(); ++id) {
    if (x.block->barriers[id].in_use) complete_barrier(x, *x.block, static_cast<uint8_t>(id));
  }
  if (x.block->cluster->barrier_in_use) complete_cluster_barrier(*x.block->cluster);
}

void block_lanes(Exec& x, uint32_t mask, PathState state, uint8_t barrier) {
  Path path = x.path;
  path.mask = mask;
  --path.pc;
  path.state = state;
  path.barrier = barrier;
  x.warp->waiting.push_back(path);
  x.path.mask &= ~mask;
  if (x.path.mask == 0) x.event = Event::kEnded;
}

void complete_barrier(Exec& x, Block& block, uint8_t id) {
  Barrier& barrier = block.barriers[id];
  const bool complete =
      barrier.expected != 0 ? barrier.arrived >= barrier.expected : barrier.arrived >= block.live;
  if (!complete) return;
  const Barrier result = barrier;
  barrier = Barrier{};
  for (size_t w = 0; w < block.warp_count; ++w) {
    Warp& warp = *block.warps[w];
    for (size_t i = 0; i < warp.waiting.size();) {
      Path path = warp.waiting[i];
      if (path.state != PathState::kBarrier || path.barrier != id) {
        ++i;
        continue;
      }
      warp.waiting.erase(warp.waiting.begin() + static_cast<ptrdiff_t>(i));
      write_barrier_result(x, warp, path, result);
      ++path.pc;
      make_ready(warp, path);
    }
  }
}

void complete_cluster_barrier(Cluster& cluster) {
  const auto each_warp = [&](auto visit) {
    for (const auto& block : cluster.blocks)
      for (size_t w = 0; w < block->warp_count; ++w) visit(*block->warps[w]);
  };
  bool complete = true;
  each_warp([&](const Warp& warp) { complete &= (warp.live & ~warp.at_cluster_barrier) == 0; });
  if (!complete) return;
  cluster.barrier_in_use = false;
  each_warp([](Warp& warp) {
    warp.at_cluster_barrier = 0;
    for (size_t i = 0; i < warp.waiting.size();) {
      Path path = warp.waiting[i];
      if (path.state != PathState::kClusterBarrier) {
        ++i;
        continue;
      }
      warp.waiting.erase(warp.waiting.begin() + static_cast<ptrdiff_t>(i));
      ++path.pc;
      make_ready(warp, path);
    }
  });
}

WarpResult run_warp(Exec& x, Warp& warp, int64_t budget) {
  const std::vector<Instr>& program = x.grid->program->code;
  const Instr* code = program.data();
  x.warp = &warp;
  x.budget = budget;
  x.spins = 0;
  x.bases[kWarpArea] = warp.specials.data();
  for (;;) {
    if (warp.live == 0) return WarpResult::kDone;
    if (warp.ready.empty() && !break_joins(warp)) return WarpResult::kBlocked;
    x.path = warp.ready.back();
    warp.ready.pop_back();
    x.bases[kFrameArea] = warp.registers.data() + x.path.frame;
    x.event = Event::kNone;
    do {
      const Instr& in = code[x.path.pc++];
      uint32_t mask = x.path.mask;
      if (in.guard != kNoOperand) {
        mask &= x.predicate(in.guard, in.guard_negated);
        if (mask == 0) continue;
      }
      x.mask = mask;
      in.run(x, in);
    } while (x.event == Event::kNone);
    if (x.event == Event::kFault) return WarpResult::kFault;
    if (x.event == Event::kYield) {
      // To the end of the line: the warp's other paths get their turn first.
      warp.ready.insert(warp.ready.begin(), x.path);
      if (x.spins >= kSpinLimit) {
        x.spun = true;
        break_joins(warp);
      }
      return WarpResult::kYielded;
    }
  }
}

WarpResult run_block(Exec& x, Block& block) {
  x.block = &block;
  x.spun = false;
  x.ran = false;
  x.bases[kBlockArea] = block.specials.data();
  x.bases[kConstArea] = const_cast<uint8_t*>(x.grid->program->constants.data());
  for (int slice = kBlockSlice; slice > 0;) {
    bool yielded = false, ran = false;
    for (size_t w = 0; w < block.warp_count; ++w) {
      Warp& warp = *block.warps[w];
      if (warp.live == 0) continue;
      if (warp.ready.empty() && !break_joins(warp)) continue;
      ran = true;
      const WarpResult result = run_warp(x, warp, kWarpSlice);
      if (result == WarpResult::kFault) return result;
      yielded |= result == WarpResult::kYielded;
      if (x.grid->stop.load(std::memory_order_relaxed)) return WarpResult::kFault;
    }
    if (block.live == 0) return WarpResult::kDone;
    x.ran |= ran;
    if (!ran) {
      if (block.cluster->blocks.size() > 1) return WarpResult::kBlocked;
      report_deadlock(x, block);
      return WarpResult::kFault;
    }
    slice -= yielded ? kYieldedRound : 1;
  }
  return WarpResult::kYielded;
}

WarpResult run_cluster(Exec& x, Cluster& cluster) {
  if (cluster.blocks.size() == 1) return run_block(x, *cluster.blocks[0]);
  bool ran = false, spun = false;
  Block* waiting = nullptr;
  for (const auto& block : cluster.blocks) {
    if (block->live == 0) continue;
    const WarpResult result = run_block(x, *block);
    if (result == WarpResult::kFault) return result;
    ran |= x.ran;
    spun |= x.spun;
    if (result != WarpResult::kDone) waiting = block.get();
  }
  x.spun = spun;
  if (waiting == nullptr) return WarpResult::kDone;
  if (!ran) {
    x.block = waiting;
    report_deadlock(x, *waiting);
    return WarpResult::kFault;
  }
  return WarpResult::kYielded;
}

}  // namespace fargpu::sim

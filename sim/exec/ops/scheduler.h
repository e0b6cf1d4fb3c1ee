// Paths and joins of one warp, and barriers of one block: which lanes run, wait and join. Called by
// the control handlers and by the loop that runs warps. All functions belong to the worker thread
// that holds the block.
#pragma once

#include "sim/exec/machine.h"

namespace fargpu::sim {

// Spinning reads in a slice before a warp gives way at its next backward branch.
inline constexpr uint32_t kSpinLimit = 256;

// The path can run; one that is at the same place under the same join takes its lanes.
void make_ready(Warp& warp, Path path);
// New join below `parent`; returns its index.
int32_t push_join(Warp& warp, const Join& join);
// The lanes `mask` of a path arrive at `join`; when all are there they become ready as one path.
void arrive_at_join(Warp& warp, int32_t join, uint32_t mask);
// The lanes have left for good (or jumped over the joins): they are not expected from `join` up to
// `until` (exclusive).
void forget_lanes(Warp& warp, int32_t join, uint32_t mask, int32_t until);
// Lets lanes that wait at joins go on alone. True when any did.
bool break_joins(Warp& warp);

// The running path's lanes `mask` end their thread.
void exit_lanes(Exec& x, uint32_t mask);

// Blocks lanes `mask` of the running path at the instruction before x.path.pc; the others go on.
void block_lanes(Exec& x, uint32_t mask, PathState state, uint8_t barrier);

// After an arrival or an exit: releases the barrier's paths if it is complete.
void complete_barrier(Exec& x, Block& block, uint8_t id);
// After an arrival or an exit: releases the cluster's paths if all of its threads have arrived.
void complete_cluster_barrier(Cluster& cluster);
// After a change of a warp's waiting or live lanes: executes warp-wide operations that have all
// their lanes.
void complete_warp_syncs(Exec& x, Warp& warp);

// Runs one warp until no lane can run or its slice is over.
enum class WarpResult { kBlocked, kDone, kYielded, kFault };
WarpResult run_warp(Exec& x, Warp& warp, int64_t budget);

// Runs a block: kDone, kFault, kYielded when its slice is over (spinning, or simply long), or
// kBlocked when it waits for other blocks of its cluster.
WarpResult run_block(Exec& x, Block& block);
// Gives each block of a cluster a turn: kDone, kFault or kYielded.
WarpResult run_cluster(Exec& x, Cluster& cluster);

}  // namespace fargpu::sim

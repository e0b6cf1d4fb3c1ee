// Operations in which the lanes of a warp exchange values (shfl, vote, match, redux, bar.warp.sync,
// elect) and the texts of barriers and deadlocks. A lane's member mask names the lanes for which it
// waits; divergent lanes wait at the instruction until all members that still live are at an
// operation with the same mask.
#pragma once

#include "sim/exec/machine.h"

namespace fargpu::sim {

// Writes the result of bar.red for the lanes of `path`, which waits at the barrier's instruction.
void write_barrier_result(Exec& x, Warp& warp, const Path& path, const Barrier& result);

// Ends the grid: no warp of the block can go on.
void report_deadlock(Exec& x, Block& block);

}  // namespace fargpu::sim

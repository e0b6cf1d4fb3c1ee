// The comparison and the changes of cuGraphExecUpdate.
#pragma once

#include <cuda.h>

#include "sim/graph/graph.h"

namespace fargpu::sim {

// Whether the nodes of an executable graph can be updated from the nodes of `graph`, which are
// paired in the order of their creation. The nodes in the result are nodes of `graph`.
CUgraphExecUpdateResultInfo compare(const Graph& own, const Graph& graph);
// After a success of compare().
void take_operations(Graph& own, const Graph& graph);

}  // namespace fargpu::sim

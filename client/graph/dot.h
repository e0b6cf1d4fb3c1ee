// A graph as a file in the DOT language, for people.
#pragma once

#include <cuda.h>

#include "client/graph/graph.h"

namespace fargpu::client {

// `flags`: CUgraphDebugDot_flags; they select the data written with each node. Needs the GraphLock.
// CUDA_ERROR_OPERATING_SYSTEM: the file cannot be written.
CUresult write_dot(const Graph& graph, const char* path, unsigned flags);

}  // namespace fargpu::client

// The calling thread's stack of current contexts, and whether it is executing a host function of a stream.
#pragma once

#include <cuda.h>

#include <vector>

namespace fargpu::sim {

// Handles only: a context may be destroyed while it is current somewhere.
std::vector<CUcontext>& context_stack();

// Calls into the driver from a host function are refused; true while this thread runs one.
bool& inside_host_function();

}  // namespace fargpu::sim

// How long the worker keeps what the work of a stream uses: staging memory, holds, events. Whoever
// puts work into a stream names the lifetime of what it uses; Completion::keep() does the rest.
//
//   UntilPassed      all that is in the stream now is done, or its context has failed
//   until a graph is gone: what a captured copy uses, which runs as often as the graph is launched.
//                    A second type beside this one, for the same keep(), when there are graphs.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace fargpu::server {

struct UntilPassed {
  uint16_t context;  // wire id; it is current
  CUstream stream;
};

}  // namespace fargpu::server

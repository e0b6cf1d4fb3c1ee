// How long the worker keeps what work of the GPU uses: staging memory, holds, streams and events
// that the client has destroyed. Whoever puts work into a stream names the lifetime of what it
// uses; Completion::keep() does the rest, and Completion::when() tells of its end.
//
//   UntilPassed   all that is in the stream now is done, or its context has failed or ended
//   UntilReached  likewise, what the event has recorded by now
//
// What lives as long as an object is not for here but for server/object/kept_objects.h.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "server/core/contexts.h"

namespace fargpu::server {

struct UntilPassed {
  uint16_t context;  // wire id; it is current
  CUstream stream;
};

struct UntilReached {
  ContextRef context;  // of the event
  CUevent event;       // lives until then
};

}  // namespace fargpu::server

// How long the worker keeps data that GPU work uses: staging memory, holds, streams and events that
// the client has destroyed. Code that puts work into a stream names the lifetime of the data;
// Completion::keep() does the rest, and Completion::when() reports its end.
//
//   UntilPassed   all that is in the stream now is done, or its context has failed or ended
//   UntilReached  the present record of the event is reached, or its context has failed or ended
//
// Data with the lifetime of an object belongs to server/object/kept_objects.h.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "server/core/contexts.h"

namespace fargpu::server {

struct UntilPassed {
  uint16_t context;  // wire id; it is current
  CUstream stream;
};

// A word in memory that the client shares, which a stream may write when it has come so far.
struct StreamWord {
  std::atomic<uint32_t>* word;
  CUdeviceptr device;  // its address for the GPU, as the client says
  // What it becomes. The client has had no wait for this word before that was not over, and its
  // values go up, as far as they are to be believed.
  uint32_t value;
  std::shared_ptr<const void> memory;  // keeps it
  bool is_written() const {
    return static_cast<int32_t>(word->load(std::memory_order_acquire) - value) >= 0;
  }
};

struct UntilReached {
  ContextRef context;  // of the event
  CUevent event;       // lives until then
};

}  // namespace fargpu::server

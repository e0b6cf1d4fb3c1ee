// Streams that are known to be done without asking.
//
// A copy to the host that the calling thread has waited for was the last in its stream, and what
// was before it is done. The stream stays so until something is sent: all that enters a stream is a
// frame. So the wait that programs make behind such a copy needs no server, if no frame has been
// sent in the session since. What another thread sends without having told this one of it has no
// order with the wait.
//
// Known for the last such copy of a thread, and for one wait: who waits again asks, and would learn
// of an error elsewhere in the context.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace fargpu::client {

class Session;

// On the stack of a thread that is about to copy to the host.
class KnownDone {
 public:
  explicit KnownDone(Session& session);
  // The copy is over, and with it all that was in `stream`. `context`: wire id of its frame.
  void passed(uint16_t context, CUstream stream) const;

 private:
  Session& session_;
  const uint64_t sent_;  // frames before the copy
};

// Whether the calling thread knows it of `stream`; afterwards it knows nothing any more.
bool is_known_done(Session& session, uint16_t context, CUstream stream);

}  // namespace fargpu::client

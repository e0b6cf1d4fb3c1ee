// Resumable: of a transport that may lose its connection without its session. The channel (client)
// and the executor (server) ask it when the connection is lost, and nowhere else; a transport that
// is none ends its session with its connection. Only transports of tests implement it yet.
#pragma once

#include "common/base/status.h"

namespace fargpu::transport {

class Resumable {
 public:
  virtual ~Resumable() = default;
  // `why`: the transport has returned it, or the peer has been silent for too long. True: it works
  // again, and no frame is lost; false: the session ends. Any thread, also several at once, and
  // again by those that have seen the same loss. May take long.
  virtual bool resume(const Status& why) = 0;
};

}  // namespace fargpu::transport

// Ids of jobs and sessions: 64 bits, never 0, each once in the daemon's life. They start somewhere,
// so that an id of an earlier daemon on this host, or of another host, is hardly one of ours. One
// thread.
#pragma once

#include <cstdint>

namespace fargpu::server {

class IdSequence {
 public:
  explicit IdSequence(uint64_t first) : next_(first) {}
  uint64_t next() {
    if (next_ == 0) ++next_;
    return next_++;
  }

 private:
  uint64_t next_;
};

}  // namespace fargpu::server

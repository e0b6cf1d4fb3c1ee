// Waiting on descriptors until a deadline. Interrupted waits are resumed.
#pragma once

#include <poll.h>

#include <span>

#include "common/transport/transport.h"

namespace fargpu::transport {

// How many descriptors are ready; 0 when the deadline passed. A deadline in the past looks once.
Result<int> poll_until(std::span<pollfd> descriptors, Deadline deadline);

// kTimeout. Made once and shared: what must not wait ends with it often.
Status peer_is_busy();

// now + duration without overflow.
inline Deadline deadline_after(Clock::duration duration) {
  const auto now = Clock::now();
  return duration > kNoDeadline - now ? kNoDeadline : now + duration;
}

}  // namespace fargpu::transport

#include "common/transport/poll.h"

#include <cerrno>
#include <ctime>

namespace fargpu::transport {

namespace {

// Made when the library is loaded, so that no call needs the heap for it; for exit handlers, too.
const Status* const busy = new Status(StatusCode::kTimeout, "peer is busy");

}  // namespace

Status peer_is_busy() { return *busy; }

Result<int> poll_until(std::span<pollfd> descriptors, Deadline deadline) {
  for (;;) {
    timespec timeout{};
    if (deadline != kNoDeadline) {
      const auto left = deadline - Clock::now();
      if (left > Clock::duration::zero()) {
        const auto seconds = std::chrono::floor<std::chrono::seconds>(left);
        timeout.tv_sec = seconds.count();
        timeout.tv_nsec = std::chrono::nanoseconds(left - seconds).count();
      }
    }
    const int ready = ::ppoll(descriptors.data(), descriptors.size(),
                              deadline == kNoDeadline ? nullptr : &timeout, nullptr);
    if (ready >= 0) return ready;
    if (errno != EINTR) return system_error("cannot poll", errno);
  }
}

}  // namespace fargpu::transport

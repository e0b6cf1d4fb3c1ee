// How many frames the calling thread has sent, and how often it has waited for the server: the data
// of a report of calls. Over all channels of the process; counted only while a report is requested.
#pragma once

#include <atomic>
#include <cstdint>

namespace fargpu::rpc {

// Not initialised by itself: readers copy the counts.
struct ThreadCalls {
  uint64_t sent;
  uint64_t waited;  // for a reply, a notice, a completion word, or space to send
};

inline constinit std::atomic<bool> counting_calls{false};
inline constinit thread_local ThreadCalls thread_calls{};

inline constinit thread_local bool not_counted{false};

// While it lives, calls of this thread do not count as the application's. It is not nested.
class NotCounted {
 public:
  NotCounted() { not_counted = true; }
  ~NotCounted() { not_counted = false; }
  NotCounted(const NotCounted&) = delete;
  NotCounted& operator=(const NotCounted&) = delete;
};

inline bool counted() { return counting_calls.load(std::memory_order_relaxed) && !not_counted; }
inline void count_sent() {
  if (counted()) [[unlikely]]
    ++thread_calls.sent;
}
inline void count_wait() {
  if (counted()) [[unlikely]]
    ++thread_calls.waited;
}

}  // namespace fargpu::rpc

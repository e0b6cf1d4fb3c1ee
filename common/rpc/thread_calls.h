// How many frames the calling thread has sent, and how often it has waited for the server: what a
// report of calls is made of. Over all channels of the process; counted only while somebody asks.
#pragma once

#include <atomic>
#include <cstdint>

namespace fargpu::rpc {

// Not initialised by itself: who looks at the counts copies them.
struct ThreadCalls {
  uint64_t sent;
  uint64_t waited;  // for a reply, a notice, a completion word, or room for what is sent
};

inline constinit std::atomic<bool> counting_calls{false};
inline constinit thread_local ThreadCalls thread_calls{};

inline constinit thread_local bool not_counted{false};

// What the calling thread does meanwhile is none of the application's calls. It is not nested.
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

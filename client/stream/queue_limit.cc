#include "client/stream/queue_limit.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "client/stream/host_calls.h"

namespace fargpu::client {

void QueueLimit::enter(uint64_t stream, const HostCalls& host_calls,
                       const std::function<bool()>& is_idle) {
  constexpr auto kShortest = std::chrono::microseconds(20),
                 kLongest = std::chrono::microseconds(1000);
  auto pause = kShortest;
  std::unique_lock lock(mutex_);
  while (host_calls.outstanding()) {
    if (const uint64_t period = host_calls.period(); period != period_) {
      period_ = period;
      total_ = 0;
      waiting_.clear();
    }
    uint64_t& here = waiting_[stream];
    if (total_ < kMost || here == 0) {
      ++here;
      ++total_;
      return;
    }
    const uint64_t asked_about = here;
    lock.unlock();
    const bool idle = is_idle();
    if (!idle) std::this_thread::sleep_for(pause);
    lock.lock();
    pause = std::min(2 * pause, kLongest);
    if (!idle || period_ != host_calls.period()) continue;
    // The answer may not cover what other threads submitted meanwhile.
    uint64_t& now = waiting_[stream];
    const uint64_t done = std::min(asked_about, now);
    now -= done;
    total_ -= done;
  }
}

}  // namespace fargpu::client

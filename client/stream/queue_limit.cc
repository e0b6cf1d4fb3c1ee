#include "client/stream/queue_limit.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "client/stream/host_calls.h"

namespace fargpu::client {

void QueueLimit::enter(Share& share, const HostCalls& host_calls,
                       const std::function<bool()>& is_idle, uint64_t places) {
  constexpr auto kShortest = std::chrono::microseconds(20),
                 kLongest = std::chrono::microseconds(1000);
  auto pause = kShortest;
  std::unique_lock lock(mutex_);
  while (host_calls.outstanding()) {
    if (const uint64_t period = host_calls.period(); period != period_) {
      period_ = period;
      total_ = 0;
    }
    if (share.period != period_) {
      share.period = period_;
      share.waiting = 0;
    }
    if (total_ + places <= kMost || share.waiting == 0 || (share.ahead && places == 1)) {
      share.ahead = places > 1;
      share.waiting += places;
      total_ += places;
      return;
    }
    const uint64_t asked_about = share.waiting;
    lock.unlock();
    const bool idle = is_idle();
    if (!idle) std::this_thread::sleep_for(pause);
    lock.lock();
    pause = std::min(2 * pause, kLongest);
    if (!idle || period_ != host_calls.period()) continue;
    if (share.period != period_) continue;
    // The answer may not cover what other threads submitted meanwhile.
    const uint64_t done = std::min(asked_about, share.waiting);
    share.waiting -= done;
    total_ -= done;
  }
}

}  // namespace fargpu::client

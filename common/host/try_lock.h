// A lock that is tried often and hardly ever awaited: a few instructions, in place.
//
// For std::unique_lock. Held for a bounded, short time only: a waiting thread yields the processor
// and tries again.
#pragma once

#include <atomic>
#include <thread>

namespace fargpu {

class TryLock {
 public:
  bool try_lock() {
    // The exchange takes the cache line from the holder, so it looks first.
    return !held_.load(std::memory_order_relaxed) &&
           !held_.exchange(true, std::memory_order_acquire);  // pairs with unlock()
  }
  void lock() {
    while (!try_lock()) std::this_thread::yield();
  }
  void unlock() { held_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> held_{false};
};

}  // namespace fargpu

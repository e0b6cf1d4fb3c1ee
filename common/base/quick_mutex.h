// A mutex that costs a few instructions, in place, while nobody waits for it. Who has to wait
// sleeps, as long as it takes.
//
// For std::unique_lock and std::lock_guard. It must not be destroyed while a thread unlocks it.
#pragma once

#include <atomic>
#include <cstdint>

namespace fargpu {

class QuickMutex {
 public:
  bool try_lock() {
    uint32_t free = kFree;
    return state_.compare_exchange_strong(free, kHeld, std::memory_order_acquire,
                                          std::memory_order_relaxed);  // pairs with unlock()
  }
  void lock() {
    if (!try_lock()) [[unlikely]]
      wait();
  }
  void unlock() {
    if (state_.exchange(kFree, std::memory_order_release) == kAwaited) [[unlikely]]
      state_.notify_one();
  }

 private:
  static constexpr uint32_t kFree = 0, kHeld = 1,
                            kAwaited = 2;  // kAwaited: held, and who ends it wakes

  // Others may wait as well, so that it stays kAwaited when this thread has got it.
  void wait() {
    while (state_.exchange(kAwaited, std::memory_order_acquire) != kFree)
      state_.wait(kAwaited, std::memory_order_relaxed);
  }

  std::atomic<uint32_t> state_{kFree};
};

}  // namespace fargpu

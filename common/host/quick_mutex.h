// A mutex that costs a few inlined instructions while no thread waits for it. A waiting thread
// sleeps.
//
// For std::unique_lock and std::lock_guard. It must not be destroyed while a thread unlocks it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

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
  // How many threads have had to wait so far.
  uint64_t waits() const { return waits_.load(std::memory_order_relaxed); }
  // For a thread that has held it for long and will again: otherwise it would lock again before the
  // waiting threads are awake. Returns when as many as wait now have had it, after `longest` at
  // most.
  void let_pass(std::chrono::microseconds longest) const {
    const uint64_t served = served_.load(std::memory_order_relaxed);
    const uint64_t begun = waits();
    if (begun == served) return;
    const auto until = std::chrono::steady_clock::now() + longest;
    do {
      std::this_thread::yield();
    } while (served_.load(std::memory_order_relaxed) < begun &&
             std::chrono::steady_clock::now() < until);
  }

 private:
  static constexpr uint32_t kFree = 0, kHeld = 1,
                            kAwaited = 2;  // kAwaited: held, and unlock() wakes a thread

  // Others may wait as well, so that it stays kAwaited when this thread has got it.
  void wait() {
    waits_.fetch_add(1, std::memory_order_relaxed);
    while (state_.exchange(kAwaited, std::memory_order_acquire) != kFree)
      state_.wait(kAwaited, std::memory_order_relaxed);
    served_.fetch_add(1, std::memory_order_relaxed);
  }

  std::atomic<uint32_t> state_{kFree};
  std::atomic<uint64_t> waits_{0}, served_{0};  // begun, ended
};

}  // namespace fargpu

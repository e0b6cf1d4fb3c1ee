// A one-shot signal: "this piece of stream work is done". Thread safe.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>

namespace fargpu::sim {

class Completion {
 public:
  bool done() const { return done_.load(std::memory_order_acquire); }
  void wait() const {
    if (done()) return;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done(); });
  }
  void complete() {
    {
      std::lock_guard lock(mutex_);
      done_.store(true, std::memory_order_release);  // pairs with done()
    }
    changed_.notify_all();
  }

 private:
  std::atomic<bool> done_{false};
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
};

using Fence = std::shared_ptr<Completion>;

inline bool pending(const Fence& fence) { return fence && !fence->done(); }

}  // namespace fargpu::sim

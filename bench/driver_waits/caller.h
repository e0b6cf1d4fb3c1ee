// A thread that makes calls of the driver, one at a time, with a context current. It never ends: a
// call may never return.
#pragma once

#include <cuda.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace driver_waits {

using Milliseconds = std::chrono::duration<double, std::milli>;

class Caller {
 public:
  explicit Caller(CUcontext context) {
    std::thread([this, context] {
      cuCtxSetCurrent(context);
      for (;;) run_next();
    }).detach();
  }
  Caller(const Caller&) = delete;

  // Once the last task has ended.
  void start(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    task_ = std::move(task);
    changed_.notify_all();
  }

  // Whether the last task has ended, or does so within this time.
  bool ends_within(Milliseconds time) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [this] { return !task_; });
  }

  // What the last task took that has ended.
  double milliseconds() {
    const std::lock_guard lock(mutex_);
    return took_.count();
  }

 private:
  void run_next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return static_cast<bool>(task_); });
    const std::function<void()>& task = task_;  // start() leaves it alone until it has ended
    lock.unlock();
    const auto begin = std::chrono::steady_clock::now();
    task();
    lock.lock();
    took_ = std::chrono::steady_clock::now() - begin;
    task_ = nullptr;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> task_;  // none: the last one has ended
  Milliseconds took_{};
};

}  // namespace driver_waits

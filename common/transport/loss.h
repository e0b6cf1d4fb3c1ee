// How a connection ended. It ends once, for one reason, which every later call returns.
// Any thread may call any member.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <utility>

#include "common/base/status.h"

namespace fargpu::transport {

// Any thread may call any member.
class Loss {
 public:
  bool happened() const { return state_.load(std::memory_order_acquire) != State::kNone; }

  // kLost with the reason. Only after happened().
  Status status() const {
    // No lock here: in a forked child it may be held by a thread that does not exist there.
    if (state_.load(std::memory_order_acquire) == State::kAbandoned) return not_ours();
    std::lock_guard lock(mutex_);
    return Status(StatusCode::kLost, why_);
  }

  // The first reason is kept: `end_it` runs without a lock, and `why` is returned unchanged. Later
  // calls return status().
  template <typename EndIt>
  Status record(Status why, EndIt end_it) {
    if (state_.load(std::memory_order_acquire) == State::kAbandoned) return not_ours();
    {
      std::lock_guard lock(mutex_);
      if (state_.load(std::memory_order_relaxed) != State::kNone) {
        return Status(StatusCode::kLost, why_);
      }
      why_ = why.message();
      state_.store(State::kLost, std::memory_order_release);  // pairs with happened()
    }
    end_it();
    return why;
  }

  // The connection belongs to the parent process.
  void abandon() { state_.store(State::kAbandoned, std::memory_order_release); }

 private:
  enum class State { kNone, kLost, kAbandoned };

  static Status not_ours() {
    return Status(StatusCode::kLost, "the connection is not ours any more");
  }

  std::atomic<State> state_{State::kNone};
  mutable std::mutex mutex_;  // guards why_
  std::string why_;
};

}  // namespace fargpu::transport

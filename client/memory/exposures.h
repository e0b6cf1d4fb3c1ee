// Exposures: threads that have sent pointers to host memory which they are still exposing. No work
// that may follow those pointers is sent meanwhile. One per session; any thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>

#include "client/stream/host_calls.h"

namespace fargpu::client {

class Exposures {
 public:
  void begin() {
    std::lock_guard lock(mutex_);
    ++under_way_;
  }
  void end() {
    std::lock_guard lock(mutex_);
    --under_way_;
    fewer_.notify_all();
  }
  bool none() {
    std::lock_guard lock(mutex_);
    return under_way_ == 0;
  }
  // Not for ever: exposing memory may wait for functions of the application, which submit work.
  // False: some are still under way.
  bool wait_for_others() {
    std::unique_lock lock(mutex_);
    return fewer_.wait_for(lock, HostCalls::kLongestGate, [this] { return under_way_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable fewer_;
  size_t under_way_ = 0;  // guarded by mutex_
};

}  // namespace fargpu::client

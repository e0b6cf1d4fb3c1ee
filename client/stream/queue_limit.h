// QueueLimit: how much a program may submit behind host functions that hold its streams.
//
// A driver accepts about a thousand operations that have not begun (an H100 with driver 580: 1021
// launches, copies and fills; events and host functions do not count). Then the submitting call
// waits, and with it every other call of that context. In the worker the waiting thread would be
// the executor, the only one that can report that a host function has returned: a deadlock. So
// while a host function is outstanding, a thread that would submit more waits here, in the client,
// and stops no other thread.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>

namespace fargpu::client {

class HostCalls;

// Any thread.
class QueueLimit {
 public:
  static constexpr uint64_t kMost = 960;  // the driver's own work, and the first operation of each
                                          // further stream, need places too

  // A stream's part of the count; guarded by the mutex of its session's limit.
  class Share {
    friend class QueueLimit;
    uint64_t period = 0;   // of host functions (HostCalls::period) in which it was counted
    uint64_t waiting = 0;  // operations that may be waiting
    bool ahead = false;    // the next operation belongs to the last counted group
  };

  // To be called before an operation enters the stream of `share`, or before `places` of them at
  // once, behind which one more follows. Returns at once unless more than kMost operations may be
  // waiting then. Else it returns when no host function is outstanding any more, or when `is_idle`
  // says that the stream has no work left.
  void enter(Share& share, const HostCalls& host_calls, const std::function<bool()>& is_idle,
             uint64_t places = 1);

 private:
  std::mutex mutex_;
  // How many operations may be waiting in all streams, since host functions have been outstanding
  // without a pause. Guarded by mutex_.
  uint64_t period_ = 0;
  uint64_t total_ = 0;
};

}  // namespace fargpu::client

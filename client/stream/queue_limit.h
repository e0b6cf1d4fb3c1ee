// QueueLimit: how much a program may put behind functions of its own that hold its streams.
//
// A driver takes about a thousand operations that have not begun (an H100 with driver 580: 1021
// launches, copies and fills; events and host functions do not count), then the submitting call
// waits, and with it every other call of that context. In the worker that is the executor, which
// alone can pass on that a host function has returned: nothing would ever go on. So, while a host
// function is outstanding, whoever would submit more waits here, where it stops nobody else.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <unordered_map>

namespace fargpu::client {

class HostCalls;

// Any thread.
class QueueLimit {
 public:
  static constexpr uint64_t kMost = 960;  // the driver's own work, and the first operation of each
                                          // further stream, need places too

  // Before an operation goes into `stream`. Returns at once unless kMost may be waiting; then when
  // no host function is outstanding any more, or when `is_idle` says that the stream has nothing
  // left to do.
  void enter(uint64_t stream, const HostCalls& host_calls, const std::function<bool()>& is_idle);

 private:
  std::mutex mutex_;
  // Since host functions have been outstanding without a pause, guarded by mutex_: what may be
  // waiting, by stream and in all.
  uint64_t period_ = 0;
  uint64_t total_ = 0;
  std::unordered_map<uint64_t, uint64_t> waiting_;
};

}  // namespace fargpu::client

// ValueWaits: streams that wait for values in host memory of which the worker has a mirror. The
// application stores such a value without a call, perhaps while all its threads wait in calls. So
// while a stream may be waiting, a thread of our own looks every millisecond whether there is
// something to send. It is started with the first wait. Any thread; lost() does not block.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "client/stream/stream_queue.h"

namespace fargpu::client {

class ValueWaits {
 public:
  // `look()`: sends such values if any has changed; called on the thread.
  explicit ValueWaits(std::function<void()> look) : look_(std::move(look)) {}
  // A wait was put into a stream; `mark` lies behind it.
  void add(std::shared_ptr<StreamQueue> mark);
  // The session is gone.
  void lost();

 private:
  void start_thread();  // with mutex_ held
  void run();

  const std::function<void()> look_;
  std::mutex mutex_;
  std::condition_variable more_;
  std::vector<std::shared_ptr<StreamQueue>> marks_;  // guarded by mutex_
  bool started_ = false;                             // guarded by mutex_
  bool lost_ = false;                                // guarded by mutex_
};

}  // namespace fargpu::client

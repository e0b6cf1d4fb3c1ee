// ValueWaits: streams that wait for a value in host memory that is mirrored in the worker. The
// application may store the value without making a call, even while all its threads wait in calls.
// So while such a wait may be pending, a thread of this class checks every millisecond whether
// bytes must be pushed. The first wait starts it. Any thread; lost() does not block.
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
  // `look()` sends such values if any has changed. It is called on the thread of this class.
  explicit ValueWaits(std::function<void()> look) : look_(std::move(look)) {}
  // A wait was put into a stream, and `mark` behind it.
  void add(std::shared_ptr<StreamQueue> mark);
  // The session is lost.
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

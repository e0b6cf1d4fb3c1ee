// ValueWaits: streams that wait for a value in host memory that is mirrored in the worker. The
// application may store the value without making a call, even while all its threads wait in calls.
// So while such a wait may be pending, a thread checks every millisecond whether bytes must be
// pushed (watch_values() in client/transfer/coherence.h). Any thread; lost() does not block.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "client/stream/stream_queue.h"

namespace fargpu::client {

class ValueWaits {
 public:
  // A wait was put into a stream, and `mark` behind it. True: the first one, for which the thread
  // is to be started.
  bool add(std::shared_ptr<StreamQueue> mark);
  // Until a wait may be pending.
  void await();
  // The session is lost.
  void lost();

 private:
  std::mutex mutex_;
  std::condition_variable more_;
  std::vector<std::shared_ptr<StreamQueue>> marks_;  // guarded by mutex_
  bool started_ = false;                             // guarded by mutex_
  bool lost_ = false;                                // guarded by mutex_
};

}  // namespace fargpu::client

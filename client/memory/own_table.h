// OwnTable: a thread that has a table of descriptors of its own. A program that closes descriptors
// which it does not know, by close_range(2) or a loop, closes them in the table of its own threads
// only: what the descriptor here stands for goes on to exist, and can be used from this thread.
//
// The thread lives as long as the process. Any thread may call; a forked child must not.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>

namespace fargpu::client {

class OwnTable {
 public:
  // The table has this descriptor, by the same number, and no other. The first call counts. False:
  // the system refuses.
  bool start(int descriptor);
  // Runs `task` on the thread, one at a time, and returns its result. A task waits for nothing and
  // calls nothing here.
  long run(const std::function<long()>& task);

 private:
  void serve(int descriptor);

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  enum class State { kNone, kStarting, kReady, kRefused } state_ = State::kNone;
  const std::function<long()>* task_ = nullptr;
  bool done_ = false;
  long result_ = 0;
};

}  // namespace fargpu::client

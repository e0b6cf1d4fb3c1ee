// PostedTasks: tasks of other threads for the executor's thread. post() from any thread, the rest
// on the executor's.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "common/base/inline_function.h"
#include "common/transport/transport.h"

namespace fargpu::server {

class PostedTasks {
 public:
  // `transport`, which outlives this, is woken.
  explicit PostedTasks(transport::Transport& transport) : transport_(transport) {}
  using Task = InlineFunction<void(), 120>;
  // Runs `task` soon.
  void post(Task task);
  // An estimate, without the lock.
  bool any() const { return any_.load(std::memory_order_relaxed); }
  // How many were run.
  size_t run();

 private:
  transport::Transport& transport_;
  std::mutex mutex_;
  std::vector<Task> tasks_;       // guarded by mutex_
  std::atomic<bool> any_{false};  // written under mutex_
};

}  // namespace fargpu::server

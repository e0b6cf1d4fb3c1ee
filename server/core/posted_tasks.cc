#include "server/core/posted_tasks.h"

#include <utility>

namespace fargpu::server {

void PostedTasks::post(Task task) {
  {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    any_.store(true, std::memory_order_relaxed);
  }
  transport_.wake();
}

size_t PostedTasks::run() {
  std::vector<Task> posted;
  {
    std::lock_guard lock(mutex_);
    posted.swap(tasks_);
    any_.store(false, std::memory_order_relaxed);
  }
  for (Task& task : posted) task();
  return posted.size();
}

}  // namespace fargpu::server

#include "server/core/posted_tasks.h"

#include <utility>

namespace fargpu::server {

void PostedTasks::post(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    any_.store(true, std::memory_order_relaxed);
  }
  transport_.wake();
}

size_t PostedTasks::run() {
  std::vector<std::function<void()>> posted;
  {
    std::lock_guard lock(mutex_);
    posted.swap(tasks_);
    any_.store(false, std::memory_order_relaxed);
  }
  for (const std::function<void()>& task : posted) task();
  return posted.size();
}

}  // namespace fargpu::server

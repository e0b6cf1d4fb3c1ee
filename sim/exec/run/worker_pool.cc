#include "sim/exec/run/worker_pool.h"

#include <algorithm>
#include <system_error>

namespace fargpu::sim {

WorkerPool::~WorkerPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
    if (stop_) return;
    Job& job = *jobs_.front();
    if (--job.waiting == 0) jobs_.pop_front();
    ++job.running;
    lock.unlock();
    (*job.task)();
    lock.lock();
    if (--job.running == 0) done_.notify_all();
  }
}

void WorkerPool::run(unsigned helpers, const std::function<void()>& task) {
  Job job{&task, helpers, 0};
  if (helpers > 0) {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(&job);
    while (threads_.size() < helpers) {
      try {
        threads_.emplace_back([this] { loop(); });
      } catch (const std::system_error&) {
        break;  // no more threads: fewer helpers
      }
    }
  }
  if (helpers > 0) work_.notify_all();
  task();
  if (helpers == 0) return;
  std::unique_lock lock(mutex_);
  job.waiting = 0;
  jobs_.erase(std::remove(jobs_.begin(), jobs_.end(), &job), jobs_.end());
  done_.wait(lock, [&] { return job.running == 0; });
}

}  // namespace fargpu::sim

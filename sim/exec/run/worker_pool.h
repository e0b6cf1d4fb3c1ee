// Threads that help to run grids. Started when first needed, as many as were ever asked for at
// once; joined on destruction. run() may be called by several threads at a time: each helps with
// its own task and shares the pool's threads.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace fargpu::sim {

class WorkerPool {
 public:
  WorkerPool() = default;
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Calls `task` on this thread and on up to `helpers` others at the same time; returns when all
  // calls have. A helper that has not begun when this thread's call returns is not started any
  // more.
  void run(unsigned helpers, const std::function<void()>& task);

 private:
  struct Job {
    const std::function<void()>* task;
    unsigned waiting;  // helpers that may still begin
    unsigned running;  // helpers that have
  };
  void loop();

  std::mutex mutex_;  // guards everything below
  std::condition_variable work_, done_;
  std::deque<Job*> jobs_;
  std::vector<std::thread> threads_;
  bool stop_ = false;
};

}  // namespace fargpu::sim

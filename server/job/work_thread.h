// WorkThread: runs jobs one after the other on a thread of its own, for work that may take as long
// as a disk wants. The thread begins with the first job. All members on one thread, the owner's.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>

namespace fargpu::server {

class WorkThread {
 public:
  // `ending`: the owner wants to go; the job is to return soon, whatever it has reached.
  using Job = std::function<void(const std::atomic<bool>& ending)>;

  WorkThread();
  // Drops the jobs that have not begun. Waits 2 s for one that has; a thread that sits in a system
  // call then stays alone.
  ~WorkThread();
  WorkThread(const WorkThread&) = delete;
  WorkThread& operator=(const WorkThread&) = delete;

  // The job, with what it holds, is destroyed on the thread. False: the system starts none.
  bool run(Job job);
  // How many have not ended.
  size_t open() const;
  // For how long the present one has been running; zero: there is none.
  std::chrono::steady_clock::duration busy() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;  // also the thread's
};

}  // namespace fargpu::server

#include "server/job/work_thread.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <utility>

#include "common/host/thread.h"

namespace fargpu::server {

using Clock = std::chrono::steady_clock;

struct WorkThread::State {
  std::atomic<bool> ending{false};
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Job> jobs;  // guarded by mutex, as all below
  bool started = false, over = false, working = false;
  Clock::time_point since;  // of the present job

  void serve() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return ending || !jobs.empty(); });
      if (ending) break;
      Job job = std::move(jobs.front());
      jobs.pop_front();
      working = true;
      since = Clock::now();
      lock.unlock();
      job(ending);
      job = nullptr;
      lock.lock();
      working = false;
    }
    over = true;
    changed.notify_all();
  }
};

WorkThread::WorkThread() : state_(std::make_shared<State>()) {}

WorkThread::~WorkThread() {
  constexpr auto kPatience = std::chrono::seconds(2);
  std::deque<Job> dropped;
  std::unique_lock lock(state_->mutex);
  state_->ending = true;
  dropped.swap(state_->jobs);
  state_->changed.notify_all();
  if (state_->started) state_->changed.wait_for(lock, kPatience, [this] { return state_->over; });
}

bool WorkThread::run(Job job) {
  const std::lock_guard lock(state_->mutex);
  if (!state_->started) {
    try {
      Thread([state = state_] { state->serve(); }).detach();
    } catch (const std::system_error&) {
      return false;
    }
    state_->started = true;
  }
  state_->jobs.push_back(std::move(job));
  state_->changed.notify_all();
  return true;
}

size_t WorkThread::open() const {
  const std::lock_guard lock(state_->mutex);
  return state_->jobs.size() + (state_->working ? 1 : 0);
}

Clock::duration WorkThread::busy() const {
  const std::lock_guard lock(state_->mutex);
  return state_->working ? Clock::now() - state_->since : Clock::duration::zero();
}

}  // namespace fargpu::server

#include "client/host_calls.h"

#include <pthread.h>
#include <signal.h>

#include <thread>

namespace fargpu::client {
namespace {

thread_local bool runs_host_functions = false;

}  // namespace

bool HostCalls::on_this_thread() { return runs_host_functions; }

uint64_t HostCalls::add(const HostFunction& function) {
  std::unique_lock lock(mutex_);
  loaded_.wait(lock, [this] { return loads_ == 0; });
  if (!started_) {
    // Detached: it lives as long as the process; the object is never destroyed while it waits
    // (process.h). Signals are the application's business: this thread takes none.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread([this] { run(); }).detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    started_ = true;
  }
  const uint64_t id = next_id_++;
  waiting_.emplace(id, function);
  if (outstanding_.fetch_add(1, std::memory_order_release) == 0) {
    period_.fetch_add(1, std::memory_order_release);
  }
  return id;
}

void HostCalls::cancel(uint64_t id) {
  std::lock_guard lock(mutex_);
  if (waiting_.erase(id) != 0) one_less();
}

void HostCalls::due(uint64_t id, CUresult status) {
  std::lock_guard lock(mutex_);
  auto found = waiting_.find(id);
  if (found == waiting_.end()) return;
  due_.push_back({found->second, id, status, true});
  waiting_.erase(found);
  ready_.notify_one();
}

void HostCalls::lost(CUresult status) {
  std::lock_guard lock(mutex_);
  for (const auto& [id, function] : waiting_) {
    if (function.callback != nullptr) {
      due_.push_back({function, id, status, false});
    } else {
      one_less();
    }
  }
  waiting_.clear();
  ready_.notify_one();
}

void HostCalls::run() {
  runs_host_functions = true;
  for (;;) {
    Due next;
    {
      std::unique_lock lock(mutex_);
      ready_.wait(lock, [this] { return !due_.empty(); });
      next = due_.front();
      due_.pop_front();
    }
    if (next.function.callback != nullptr) {
      next.function.callback(next.function.stream, next.status, next.function.user_data);
    } else if (next.status == CUDA_SUCCESS) {
      next.function.function(next.function.user_data);
    }
    if (next.tell) done_(next.id);
    std::lock_guard lock(mutex_);
    one_less();
  }
}

void HostCalls::one_less() {
  if (outstanding_.fetch_sub(1, std::memory_order_release) == 1) none_.notify_all();
}

void HostCalls::begin_load() {
  std::unique_lock lock(mutex_);
  if (!runs_host_functions) none_.wait(lock, [this] { return !outstanding(); });
  ++loads_;
}

void HostCalls::end_load() {
  std::lock_guard lock(mutex_);
  if (--loads_ == 0) loaded_.notify_all();
}

}  // namespace fargpu::client

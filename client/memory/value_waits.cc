#include "client/memory/value_waits.h"

#include <chrono>
#include <thread>

#include "common/base/thread.h"

namespace fargpu::client {

void ValueWaits::add(std::shared_ptr<StreamQueue> mark) {
  std::lock_guard lock(mutex_);
  if (lost_) return;
  start_thread();
  marks_.push_back(std::move(mark));
  more_.notify_one();
}

void ValueWaits::lost() {
  std::lock_guard lock(mutex_);
  lost_ = true;
  marks_.clear();
}

void ValueWaits::start_thread() {
  if (started_) return;
  // Detached, as that of the host functions (host_calls.cc).
  Thread([this] { run(); }).detach();
  started_ = true;
}

void ValueWaits::run() {
  constexpr auto kLookEvery = std::chrono::milliseconds(1);
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      more_.wait(lock, [this] { return !marks_.empty(); });
      std::erase_if(marks_, [](const auto& mark) { return QueueMarks::is_reached(*mark); });
      if (marks_.empty()) continue;
    }
    look_();
    std::this_thread::sleep_for(kLookEvery);
  }
}

}  // namespace fargpu::client

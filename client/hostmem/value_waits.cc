#include "client/hostmem/value_waits.h"

#include <utility>

namespace fargpu::client {

bool ValueWaits::add(std::shared_ptr<StreamQueue> mark) {
  std::lock_guard lock(mutex_);
  if (lost_) return false;
  marks_.push_back(std::move(mark));
  more_.notify_one();
  return !std::exchange(started_, true);
}

void ValueWaits::lost() {
  std::lock_guard lock(mutex_);
  lost_ = true;
  marks_.clear();
}

void ValueWaits::await() {
  std::unique_lock lock(mutex_);
  for (;;) {
    more_.wait(lock, [this] { return !marks_.empty(); });
    std::erase_if(marks_, [](const auto& mark) { return mark->is_reached(); });
    if (!marks_.empty()) return;
  }
}

}  // namespace fargpu::client

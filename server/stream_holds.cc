#include "server/stream_holds.h"

namespace fargpu::server {

bool StreamHolds::concerns(const Counts& counts, uint16_t context) {
  if (context == kEveryContext) return !counts.empty();
  return counts.contains(context) || counts.contains(kEveryContext);
}

void StreamHolds::one_less(Counts& counts, uint16_t context) {
  const auto found = counts.find(context);
  if (found != counts.end() && --found->second == 0) counts.erase(found);
}

void StreamHolds::hold(uint16_t context) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return closed_ || !concerns(calls_, context); });
  ++holds_[context];
}

void StreamHolds::let_go(uint16_t context) {
  {
    std::lock_guard lock(mutex_);
    one_less(holds_, context);
  }
  changed_.notify_all();
}

bool StreamHolds::begin_call(uint16_t context) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return closed_ || !concerns(holds_, context); });
  if (closed_) return false;
  ++calls_[context];
  return true;
}

void StreamHolds::end_call(uint16_t context) {
  {
    std::lock_guard lock(mutex_);
    one_less(calls_, context);
  }
  changed_.notify_all();
}

void StreamHolds::close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
}

}  // namespace fargpu::server

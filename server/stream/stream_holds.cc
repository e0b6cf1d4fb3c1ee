#include "server/stream/stream_holds.h"

namespace fargpu::server {

bool StreamHolds::concerns(const Counts& counts, CUdevice device) {
  if (device == kEveryDevice) return !counts.empty();
  return counts.contains(device) || counts.contains(kEveryDevice);
}

void StreamHolds::one_less(Counts& counts, CUdevice device) {
  const auto found = counts.find(device);
  if (found != counts.end() && --found->second == 0) counts.erase(found);
}

void StreamHolds::hold(CUdevice device) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return closed_ || !concerns(calls_, device); });
  ++holds_[device];
}

void StreamHolds::release(CUdevice device) {
  {
    std::lock_guard lock(mutex_);
    one_less(holds_, device);
  }
  changed_.notify_all();
}

bool StreamHolds::any() const {
  std::lock_guard lock(mutex_);
  return !holds_.empty();
}

bool StreamHolds::begin_call(CUdevice device) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return closed_ || !concerns(holds_, device); });
  if (closed_) return false;
  ++calls_[device];
  return true;
}

void StreamHolds::end_call(CUdevice device) {
  {
    std::lock_guard lock(mutex_);
    one_less(calls_, device);
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

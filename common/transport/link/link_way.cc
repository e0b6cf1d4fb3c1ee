#include "common/transport/link/link_way.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "common/base/check.h"

namespace fargpu::transport {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

}  // namespace

size_t LinkWay::join() {
  const std::lock_guard lock(mutex_);
  FARGPU_CHECK(count_ < kMostConnections);
  return count_++;
}

int64_t LinkWay::pass(Connections& connections, int64_t most) {
  int64_t least = kMost;
  int64_t waiting = 0;
  for (const Connection& connection : connections) {
    if (connection.waits <= 0) continue;
    least = std::min(least, connection.waits);
    ++waiting;
  }
  if (waiting == 0) return 0;
  const int64_t part = std::min(least, most / waiting);
  for (Connection& connection : connections) {
    if (connection.waits <= 0) continue;
    connection.waits -= part;
    connection.done += part;
  }
  return part * waiting;
}

void LinkWay::go_on(Time now) {
  const int64_t nanoseconds = std::chrono::nanoseconds(now - now_).count();
  // Of what is more than years nothing waits.
  int64_t left = std::min(nanoseconds, kMost / kTicks) * kTicks;
  while (left > 0) {
    const int64_t passed = pass(connections_, left);
    if (passed == 0) break;
    left -= passed;
  }
  now_ = std::max(now_, now);
}

int64_t LinkWay::length(double nanoseconds) { return std::llround(nanoseconds * kTicks); }

int64_t LinkWay::add(size_t connection, double nanoseconds, Time now) {
  const std::lock_guard lock(mutex_);
  go_on(now);
  Connection& own = connections_[connection];
  own.waits += length(nanoseconds);
  return own.done + own.waits;
}

LinkWay::Time LinkWay::passed(size_t connection, int64_t place, Time now) {
  const std::lock_guard lock(mutex_);
  go_on(now);
  Connections ahead = connections_;
  Connection& own = ahead[connection];
  own.waits = place - own.done;  // without what is behind it
  int64_t time = 0;
  while (own.waits > 0) time += pass(ahead, kMost);
  return now_ + std::chrono::nanoseconds((time + kTicks - 1) / kTicks);
}

}  // namespace fargpu::transport

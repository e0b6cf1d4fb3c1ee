#include "common/transport/link/link_way.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "common/base/check.h"

namespace fargpu::transport {
namespace {

using Nanoseconds = std::chrono::duration<double, std::nano>;

}  // namespace

size_t LinkWay::join() {
  const std::lock_guard lock(mutex_);
  FARGPU_CHECK(count_ < kMostConnections);
  return count_++;
}

double LinkWay::pass(Connections& connections, double most) {
  double least = std::numeric_limits<double>::infinity();
  double waiting = 0;
  for (const Connection& connection : connections) {
    if (connection.waits <= 0) continue;
    least = std::min(least, connection.waits);
    ++waiting;
  }
  if (waiting == 0) return 0;
  const double part = std::min(least, most / waiting);
  for (Connection& connection : connections) {
    if (connection.waits <= 0) continue;
    connection.waits -= part;
    connection.done += part;
  }
  return part * waiting;
}

void LinkWay::go_on(Time now) {
  double left = Nanoseconds(now - now_).count();
  while (left > 0) {
    const double passed = pass(connections_, left);
    if (passed == 0) break;
    left -= passed;
  }
  now_ = std::max(now_, now);
}

double LinkWay::add(size_t connection, double nanoseconds, Time now) {
  const std::lock_guard lock(mutex_);
  go_on(now);
  Connection& own = connections_[connection];
  own.waits += nanoseconds;
  return own.done + own.waits;
}

LinkWay::Time LinkWay::passed(size_t connection, double place, Time now) {
  const std::lock_guard lock(mutex_);
  go_on(now);
  Connections ahead = connections_;
  Connection& own = ahead[connection];
  own.waits = place - own.done;  // without what is behind it
  double time = 0;
  while (own.waits > 0) time += pass(ahead, std::numeric_limits<double>::infinity());
  return now_ + std::chrono::nanoseconds(static_cast<int64_t>(std::ceil(time)));
}

}  // namespace fargpu::transport

// LineBudget: how many lines a source may write into the daemon's log.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

namespace fargpu::server {

class LineBudget {
 public:
  using Clock = std::chrono::steady_clock;
  struct Rate {
    double burst;       // lines at once
    double per_second;  // in the long run
  };
  explicit LineBudget(Rate rate) : rate_(rate), left_(rate.burst) {}

  // Whether a line may be written; it counts then.
  bool take(Clock::time_point now = Clock::now()) {
    const double seconds = std::chrono::duration<double>(now - since_).count();
    left_ = std::min(rate_.burst, left_ + seconds * rate_.per_second);
    since_ = now;
    if (left_ < 1) return false;
    left_ -= 1;
    return true;
  }

 private:
  Rate rate_;
  double left_;
  Clock::time_point since_ = Clock::now();
};

}  // namespace fargpu::server

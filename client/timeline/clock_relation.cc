#include "client/timeline/clock_relation.h"

#include <algorithm>
#include <cmath>

namespace fargpu::client::timeline {

Exchange best_of(std::span<const Exchange> exchanges) {
  return *std::ranges::min_element(exchanges, {}, &Exchange::round_trip);
}

uint64_t ClockRelation::to_ours(uint64_t worker) const {
  // Differences of numbers that may be any wrap.
  const auto from_first = [this](uint64_t time) {
    return static_cast<double>(static_cast<int64_t>(time - first_.worker));
  };
  const auto offset = static_cast<uint64_t>(first_.offset());
  const auto drift = static_cast<int64_t>(static_cast<uint64_t>(last_.offset()) - offset);
  // A clock that went back would turn everything round: then there is only the first exchange.
  const double span = from_first(last_.worker);
  const double part = span > 0 ? std::clamp(from_first(worker) / span, 0.0, 1.0) : 0.0;
  constexpr double kMost = 9e18;
  const double more = std::clamp(part * static_cast<double>(drift), -kMost, kMost);
  return worker - offset - static_cast<uint64_t>(std::llround(more));
}

int64_t least_correction(int64_t at_least, int64_t at_most) {
  if (at_least > at_most) return at_most + (at_least - at_most) / 2;
  return std::clamp<int64_t>(0, at_least, at_most);
}

}  // namespace fargpu::client::timeline

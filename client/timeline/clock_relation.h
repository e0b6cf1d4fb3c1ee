// How a worker's clock relates to ours, from time stamps that both ends took. Pure; times are
// nanoseconds, and a worker's may be any number.
#pragma once

#include <cstdint>
#include <span>

namespace fargpu::client::timeline {

// One round trip: the worker read its clock, somewhere between `sent` and `received` by ours.
struct Exchange {
  uint64_t sent = 0, worker = 0, received = 0;

  uint64_t round_trip() const { return received - sent; }
  // The worker's clock less ours. True within half the round trip.
  int64_t offset() const { return static_cast<int64_t>(worker - (sent + round_trip() / 2)); }
};

// The exchange with the shortest round trip. `exchanges` is not empty.
Exchange best_of(std::span<const Exchange> exchanges);

// The clocks drift evenly from one exchange to the other.
class ClockRelation {
 public:
  constexpr ClockRelation(const Exchange& first, const Exchange& last)
      : first_(first), last_(last) {}
  uint64_t to_ours(uint64_t worker) const;

 private:
  Exchange first_, last_;
};

// The correction of all times of the worker that puts every event between its cause and its effect:
// the least by amount of the numbers from `at_least` to `at_most`, which the events allow; where
// they contradict each other, the middle.
int64_t least_correction(int64_t at_least, int64_t at_most);

}  // namespace fargpu::client::timeline

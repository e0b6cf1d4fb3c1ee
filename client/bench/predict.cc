#include "client/bench/predict.h"

#include <algorithm>
#include <cmath>

namespace fargpu::bench {

namespace {

constexpr double kWorthFitting = 0.02;  // of the time

double mix(double low, double high, double share) { return low + share * (high - low); }

// Between two rates the lag goes with the time that a byte takes, 1 / rate; beyond the last one
// it falls with that to nothing, before the first one it grows with it.
double lag(const ProcessReport& process, double bits_per_second, double RateLag::*which) {
  if (bits_per_second <= 0) return 0;
  const auto& rates = process.rates;
  if (bits_per_second <= rates.front().bits_per_second)
    return rates.front().*which * rates.front().bits_per_second / bits_per_second;
  if (bits_per_second >= rates.back().bits_per_second)
    return rates.back().*which * rates.back().bits_per_second / bits_per_second;
  const auto faster = std::find_if(rates.begin(), rates.end(), [&](const RateLag& one) {
    return one.bits_per_second >= bits_per_second;
  });
  const RateLag &high = *faster, &low = *(faster - 1);
  const double share = (1 / bits_per_second - 1 / high.bits_per_second) /
                       (1 / low.bits_per_second - 1 / high.bits_per_second);
  return mix(high.*which, low.*which, share);
}

double extra(const ProcessReport& process, double rtt_ns, double bits_per_second,
             const Shares& shares) {
  // The longest chain is never shorter than the busiest thread's.
  const auto most = static_cast<double>(process.most_of_a_thread),
             row = std::max(most, static_cast<double>(process.in_a_row));
  const double early = lag(process, bits_per_second, &RateLag::overlapped_ns),
               late = std::max(early, lag(process, bits_per_second, &RateLag::in_order_ns));
  return mix(most, row, shares.waits) * rtt_ns + mix(early, late, shares.bytes);
}

// What is behind each other adds up, of what is at the same time the longest counts.
double chain(const Run& run, const Link& link, const Shares& shares) {
  struct Piece {
    uint64_t begin, end;
    double until;  // the chain that ends with this one
  };
  std::vector<Piece> pieces;
  std::vector<const ProcessReport*> order;
  for (const ProcessReport& process : run.processes) order.push_back(&process);
  std::stable_sort(order.begin(), order.end(), [](const ProcessReport* a, const ProcessReport* b) {
    return a->begin_ns < b->begin_ns;
  });
  // A link with a shorter round trip makes a process faster; the chain takes what is most.
  bool any = false;
  double longest = 0;
  for (const ProcessReport* const process : order) {
    double before = 0;
    for (const Piece& piece : pieces)
      if (piece.end <= process->begin_ns) before = std::max(before, piece.until);
    const double until =
        before + extra(*process, link.rtt_ns - run.rtt_ns, link.bits_per_second, shares);
    pieces.push_back({process->begin_ns, process->begin_ns + process->nanoseconds, until});
    longest = any ? std::max(longest, until) : until;
    any = true;
  }
  return longest;
}

double time_of(const Run& run, const Link& link, const Shares& shares) {
  return std::max(0.0, run.nanoseconds + chain(run, link, shares));
}

double fit(double low, double high, double nanoseconds) {
  if (high - low < kWorthFitting * nanoseconds) return 1;
  return std::clamp((nanoseconds - low) / (high - low), 0.0, 1.0);
}

}  // namespace

Prediction predict(const Run& run, const Link& link, const Shares& shares) {
  Prediction all;
  all.nanoseconds = time_of(run, link, shares);
  all.shortest = time_of(run, link, {0, 0});
  all.longest = time_of(run, link, {1, 1});
  if (all.shortest > all.longest) std::swap(all.shortest, all.longest);
  return all;
}

double fit_waits(const Run& run, const Link& link, double nanoseconds) {
  return fit(time_of(run, link, {0, 1}), time_of(run, link, {1, 1}), nanoseconds);
}

double fit_bytes(const Run& run, const Link& link, double nanoseconds, double waits) {
  return fit(time_of(run, link, {waits, 0}), time_of(run, link, {waits, 1}), nanoseconds);
}

}  // namespace fargpu::bench

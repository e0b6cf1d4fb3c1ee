// The time of a run over another link, predicted from one run.
//
//   T(link) = T + waits in a row x (round trip - the measured link's) + lag(bandwidth)
//
// The client has counted the waits and the lag (common/rpc/link_estimate.h). Each has two values
// between which the truth lies: `Shares` says where, 1 at the longer one. Overlapping processes
// cost as much as the slowest chain of processes in sequence. Pure functions.
#pragma once

#include <vector>

#include "client/bench/observed.h"

namespace fargpu::bench {

struct Link {
  double rtt_ns = 0;
  double bits_per_second = 0;  // 0: bytes take no time
};

struct Run {
  double nanoseconds = 0;  // from the program's start to its end
  double rtt_ns = 0;       // of the link that it was measured over
  std::vector<ProcessReport> processes;
};

// 1: waits of threads that did not overlap stay one after another, and the server works only when
// all bytes before have come. 0: only the busiest thread's waits count, and work overlaps bytes.
struct Shares {
  double waits = 1, bytes = 1;
};

struct Prediction {
  double nanoseconds = 0;            // with the shares
  double shortest = 0, longest = 0;  // with both 0, both 1
};
Prediction predict(const Run& run, const Link& link, const Shares& shares);

// The shares with which predict() gives the time of a second run. A share is left alone where its
// two values differ by less than 2 % of the time.
double fit_waits(const Run& run, const Link& link, double nanoseconds);
double fit_bytes(const Run& run, const Link& link, double nanoseconds, double waits);

}  // namespace fargpu::bench

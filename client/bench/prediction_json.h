// A prediction as a file, and as data for its page. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "client/bench/predict.h"

namespace fargpu::bench {

// A run over an emulated link, for fitting.
struct FitRun {
  Link link;
  double nanoseconds = 0;
};

struct Study {
  std::string program;
  Run run;
  Shares shares;
  std::vector<FitRun> fits;
};

// The predicted run: the links that were given, and each round trip with each bandwidth.
struct Wanted {
  std::vector<Link> given;
  std::vector<double> rtts_ns, bits_per_second;
  Link at;  // where calls to change are named
};

// docs/bench.md lists the members.
Json to_json(const Study& study, const Wanted& wanted);

}  // namespace fargpu::bench

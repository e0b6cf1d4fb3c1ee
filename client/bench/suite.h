// Runs a plan in several ways, in turn: every round measures each case natively, over each
// transport and on its bare link, one right after the other, so that other load affects all
// variants equally.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "client/bench/plan.h"
#include "client/bench/program.h"
#include "client/bench/results.h"

namespace fargpu::bench {

// How fargpu-measure is started, and its task.
struct Way {
  enum class Kind { kNative, kRemote, kBare };
  std::string name;
  Kind kind = Kind::kRemote;
  std::vector<std::string> calls;   // the command for Phase::kCalls
  std::vector<std::string> starts;  // for the other two; of a bare link empty: it needs none
  Program::Environment environment;
  unsigned rounds = UINT32_MAX;  // in which it takes part, at most
};

struct Budget {
  std::chrono::steady_clock::time_point begin, end;
};

struct Progress {
  double done = 0;  // 0 .. 1
  double seconds_left = 0;
  std::string what;
};

// Adds figures and skips to `results`, and each variant's data about itself to its "ways". A case
// that cannot be measured is a skip with its reason; a way whose program dies stays lost. Ends soon
// after the budget's end; every case is measured once if at all possible. One thread.
void run_suite(const std::vector<Step>& plan, const std::vector<Way>& ways, unsigned rounds,
               const Budget& budget, const std::function<void(const Progress&)>& progress,
               Results& results);

}  // namespace fargpu::bench

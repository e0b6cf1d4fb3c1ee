// The changes between two files of results, beyond the noise. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "client/bench/figures/json.h"
#include "common/base/status.h"

namespace fargpu::bench {

struct Change {
  enum class Kind { kSame, kSlower, kFaster, kUnknown };  // unknown: too few rounds to say
  std::string name, way;
  double before = 0, now = 0;  // medians, ns
  Kind kind = Kind::kSame;
};

struct Comparison {
  std::vector<Change> changes;        // of every case that both have
  std::vector<std::string> cautions;  // why the two may differ for another reason
  size_t only_before = 0, only_now = 0;
  std::vector<std::string> lost;  // ways that were measured before, and have failed now
  bool slower() const;
};

// A case is slower when its whole interval of medians lies above the one before, and its median is
// more than 5 %, and more than the clock's nanosecond, larger; faster in the same way. Both need
// five rounds: their intervals then hold the true median with 94 %, and two of an unchanged thing
// lie apart once in 126 times.
// kInvalidArgument: a file has a result without the members that are needed.
Result<Comparison> compare(const Json& before, const Json& now);

// {"changes": [{"case", "way", "before", "now", "kind"}] of slower and faster cases, "cautions",
// "lost"}.
Json to_json(const Comparison& comparison);

// For people: the changed cases, and the number of unchanged ones.
std::string to_text(const Comparison& comparison);

}  // namespace fargpu::bench

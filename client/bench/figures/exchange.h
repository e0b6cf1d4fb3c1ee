// The messages of `fargpu bench` and the programs that measure for it: a Question, and one Answer
// to it, each a line of JSON. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/bench/figures/histogram.h"
#include "client/bench/figures/json.h"
#include "common/base/status.h"

namespace fargpu::bench {

// The case to measure, and the time for it.
struct Question {
  std::string name;      // "host_to_device_memcpy_ce"
  std::string memory;    // of the host: "pinned", "registered", "pageable"; empty: none
  uint64_t bytes = 0;    // of one copy; 0: no copy
  unsigned count = 0;    // threads, streams or sessions at once; 0: one
  double seconds = 0.1;  // at least one measurement is made, however long it takes
};

// The figures of one of several participants (a thread, a session).
struct Share {
  uint64_t count = 0;   // of its calls
  uint64_t median = 0;  // ns
  uint64_t p99 = 0;     // ns
};

struct Record {
  std::string name;
  Histogram times;
  std::vector<Share> shares;  // of each participant, where there are several
};

struct Answer {
  std::vector<Record> records;
  std::string skipped;  // why there are none: it cannot be measured here
};

Json to_json(const Question& question);
Json to_json(const Answer& answer);
Json to_json(const Histogram& histogram);
Json to_json(const std::vector<Share>& shares);
// kInvalidArgument.
Result<Question> read_question(const Json& json);
Result<Answer> read_answer(const Json& json);

}  // namespace fargpu::bench

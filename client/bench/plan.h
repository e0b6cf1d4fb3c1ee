// The measurements: the questions, in order, and the name of each answer. Pure values.
#pragma once

#include <cstdint>
#include <regex>
#include <string>
#include <vector>

#include "client/bench/figures/exchange.h"

namespace fargpu::bench {

enum class Phase {
  kStarts,    // in fresh processes
  kCalls,     // in one process for each way
  kSessions,  // in many fresh processes; the processes of kCalls have ended
};

// The bare link's counterpart of a question; without a name, nothing.
struct BareQuestion {
  std::string name;  // "round_trip", "to_server", "to_client"
  uint64_t bytes = 0;
  unsigned count = 0;
};

struct Step {
  Phase phase = Phase::kCalls;
  Question question;
  std::vector<std::string> records;  // that are wanted of the answer
  BareQuestion bare;
  unsigned rounds = 0;  // at most; 0: as many as there are
};

struct Scale {
  bool quick = false;
  uint64_t largest = 1 << 30;  // bytes of a copy
};

// Names the measured case: "host_to_device_memcpy_ce/pinned/64KiB", "sessions_call_sync/16".
std::string case_name(const std::string& record, const Question& question);
// "4B", "64KiB", "1GiB".
std::string size_name(uint64_t bytes);
// The record's name in one sentence, for --list.
std::string explain(const std::string& record);

// Steps with at least one record whose case name `only` finds something in; of those records.
std::vector<Step> make_plan(const Scale& scale, const std::regex& only);
// Rounds of kCalls.
unsigned rounds_of(const Scale& scale);

}  // namespace fargpu::bench

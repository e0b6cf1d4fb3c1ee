// The reports of a program's processes (FARGPU_REPORT=FILE.json, docs/tools.md), read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/bench/figures/json.h"

namespace fargpu::bench {

struct WaitCounts {
  uint64_t waited = 0, waited_ns = 0;  // calls that waited, and how long
  uint64_t round_trips = 0;
  uint64_t bytes_sent = 0, bytes_received = 0;  // data of copies and images

  WaitCounts& operator+=(const WaitCounts& more);
};

struct FunctionCalls : WaitCounts {
  std::string name;
  uint64_t local = 0, sent = 0;
  uint64_t inside_ns = 0;  // of all calls

  // Adds the counts; the name stays.
  FunctionCalls& operator+=(const FunctionCalls& more);
};

// Calls of a function that waited, by where in the program they were made.
struct PlaceCalls : WaitCounts {
  std::string function, place;
  std::string library;  // the innermost line of Python where the place is not that; else empty
};

struct RouteCopies {
  bool to_device = false;
  std::string route;
  uint64_t copies = 0, bytes = 0;
};

// The lag of a process over a link of that rate (common/rpc/link_estimate.h).
struct RateLag {
  double bits_per_second = 0, in_order_ns = 0, overlapped_ns = 0;
};

struct ProcessReport {
  std::string name;
  uint64_t begin_ns = 0, nanoseconds = 0;  // of one clock for all processes
  std::vector<FunctionCalls> functions;
  std::vector<RouteCopies> copies;
  uint64_t images_sent = 0, image_bytes_sent = 0, images_found = 0;
  uint64_t round_trips = 0, in_a_row = 0, most_of_a_thread = 0;
  std::vector<RateLag> rates;  // slowest first
  // Where they were asked for: the longest waits first, and the time for reading stacks, of all
  // threads.
  std::vector<PlaceCalls> places;
  uint64_t looking_ns = 0;
};

// One report on each line. kInvalidArgument names the line and its fault.
Result<std::vector<ProcessReport>> read_reports(const std::string& text);

// The same places of all processes, added up, the longest waits first.
std::vector<PlaceCalls> places_of(const std::vector<ProcessReport>& processes);
// The same functions of all processes, added up.
std::vector<FunctionCalls> functions_of(const std::vector<ProcessReport>& processes);

}  // namespace fargpu::bench

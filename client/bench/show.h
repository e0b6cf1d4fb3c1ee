// The output of `fargpu bench app`. Pure functions.
#pragma once

#include <string>

#include "client/bench/predict.h"

namespace fargpu::bench {

// Where the time of the run went: calls, waits by function, bytes by route, images.
std::string describe_run(const Run& run, const std::string& program);
// Where in the program calls waited; empty where it was not asked for.
std::string describe_places(const Run& run);
// A line for each round trip, a column for each bandwidth.
std::string describe_links(const Run& run, const std::vector<double>& rtts_ns,
                           const std::vector<double>& bits_per_second, const Shares& shares);
// "rtt 200 us, 10 Gb/s: 1.25 s", with the range where its ends differ by more than 5 %.
std::string describe_link(const Run& run, const Link& link, const Shares& shares);
// The calls that would help most to change.
std::string describe_advice(const Run& run, const Link& link, const Shares& shares);

// "200 us, 10 Gb/s".
std::string show_link(const Link& link);

}  // namespace fargpu::bench

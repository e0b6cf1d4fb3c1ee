// Results as a table for people. Pure functions.
#pragma once

#include <string>

#include "client/bench/figures/json.h"

namespace fargpu::bench {

// "12 ns", "3.4 us", "1.20 ms", "2.5 s".
std::string show_time(double nanoseconds);
// "24.9 GB/s".
std::string show_rate(double bytes_per_second);

// A line for each case, with the columns of each way: median, 99th percentile (of copies from 64
// KiB on the rate), and the ratios to native and to the bare link. `results`: as read_results()
// gives them.
std::string make_table(const Json& results);

}  // namespace fargpu::bench

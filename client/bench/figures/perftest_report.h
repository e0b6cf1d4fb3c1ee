// The output of perftest's programs. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace fargpu::bench {

// The figure in `column` (from 0) of the last line of a report that begins with the number of
// bytes; negative: there is none.
double figure_of_report(const std::string& report, uint64_t bytes, size_t column);

}  // namespace fargpu::bench

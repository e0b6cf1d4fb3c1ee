#include "client/bench/figures/perftest_report.h"

#include <cstdlib>
#include <sstream>
#include <vector>

namespace fargpu::bench {

double figure_of_report(const std::string& report, uint64_t bytes, size_t column) {
  double figure = -1;
  std::istringstream lines(report);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::vector<std::string> all;
    for (std::string word; words >> word;) all.push_back(word);
    if (all.size() > column && all[0] == std::to_string(bytes))
      figure = std::strtod(all[column].c_str(), nullptr);
  }
  return figure;
}

}  // namespace fargpu::bench

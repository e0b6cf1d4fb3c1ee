// The results of a run of `fargpu bench`, and their file. docs/bench.md describes the file. Plain
// values.
#pragma once

#include <string>
#include <vector>

#include "client/bench/figures/exchange.h"
#include "client/bench/figures/json.h"
#include "common/base/status.h"

namespace fargpu::bench {

// One case in one way.
struct Figure {
  std::string name;  // case_name()
  std::string way;   // "native", "shm", "bare-tcp"
  std::string record;
  Question question;
  std::string bare;  // the case of the bare link to compare with; empty: none
  Histogram times;
  std::vector<double> round_medians;  // ns
  std::vector<Share> shares;          // of the last round
};

struct Skip {
  std::string name, way;  // empty: all
  std::string why;
};

struct Results {
  Json about = Json::object();  // machine, versions, ways
  std::vector<Figure> figures;
  std::vector<Skip> skips;
};

// The median and its interval: from the smallest to the largest median of the rounds. So many
// rounds of an unchanged thing have its true median between them with a probability of 1 - 2^(1 -
// rounds), whatever the distribution.
struct Median {
  double value = 0, low = 0, high = 0;  // ns
  size_t rounds = 0;
  double confidence() const;
};
Median median_of(const std::vector<double>& round_medians);

// How evenly a server serves: 1 when all shares have as many calls.
struct Fairness {
  double most_to_least = 0;  // largest / smallest number of calls; 0: one had none
  double jain = 0;           // Jain's index, 1 / n .. 1
};
Fairness fairness_of(const std::vector<Share>& shares);

inline constexpr unsigned kFormat = 1;  // of the file

Json to_json(const Results& results);
Status write_results(const std::string& path, const Json& json);
// A file that was there stays until the new one is whole. kSystem with the file's name.
Status write_whole(const std::string& path, const std::string& text);
// Whether a file can be written there, asked before anything is measured: five minutes later would
// be a pity. The error begins with `option`. An empty path is right.
Status check_writable(const std::string& option, const std::string& path);
// A file of at most 64 MiB, of this format. kInvalidArgument with the file's name; kNotFound,
// kSystem.
Result<Json> read_results(const std::string& path);

}  // namespace fargpu::bench

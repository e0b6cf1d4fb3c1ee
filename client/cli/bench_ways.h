// Where `fargpu bench` measures: natively, over each transport that the server gives, and on the
// bare links below them. One thread.
#pragma once

#include <string>
#include <vector>

#include "client/bench/suite.h"
#include "client/cli/server_query.h"

namespace fargpu::cli {

struct WayWishes {
  std::string transport;       // empty or "auto": each that works
  std::string peer;            // the other end of bare TCP, host:port; empty: one of our own
  bool native = true;          // where there is a GPU here
  std::string native_library;  // folder with its libcuda.so.1; empty: the system's
};

// Opens a session over each transport to see whether it works; errors that do not become skips.
// Fails when none works, or when the only one that was wished for does not. `here`: the environment
// of a native program; ours must be that of `fargpu run`. `largest` in the commands is a
// placeholder until set_largest().
struct Ways {
  std::vector<bench::Way> ways;
  bench::Json about;  // "ways" of the results
  std::vector<bench::Skip> skips;
};
Result<Ways> find_ways(const Target& target, const WayWishes& wishes,
                       const bench::Program::Environment& here, const std::string& program);
void set_largest(std::vector<bench::Way>& ways, uint64_t bytes);

// This process's variables.
bench::Program::Environment own_environment();

}  // namespace fargpu::cli

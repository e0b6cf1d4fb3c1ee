// What a host has: its driver and its GPUs, as a probe tells: a fargpu-worker that opens the
// driver, answers and ends. The daemon itself never opens a driver, so that none can hang it, crash
// it or hold a GPU.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "server/placement/unit.h"

namespace fargpu::server {

struct Inventory {
  std::string driver_path;
  int driver_version = 0;  // cuDriverGetVersion: 13000
  std::vector<Unit> units;
};

// Runs the probe, and waits for it. `driver`: "auto", "sim" or a path. kDriver with the probe's own
// words, or how it ended; kNotFound when there is no GPU; kTimeout.
Result<Inventory> probe(const std::string& worker_program, const std::string& driver,
                        const std::vector<std::pair<std::string, std::string>>& environment);

}  // namespace fargpu::server

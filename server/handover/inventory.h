// The driver and GPUs of a host. A probe finds them: a fargpu-worker that opens the driver, answers
// and ends. The daemon itself opens no driver, so that a driver can neither hang nor crash it, and
// it holds no GPU.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "server/placement/unit.h"

namespace fargpu::server {

class Launcher;

struct Inventory {
  std::string driver_path;
  int driver_version = 0;  // cuDriverGetVersion: 13000
  std::vector<Unit> units;
};

// Runs the probe, and waits for it. `driver`: "auto", "sim" or a path. kDriver: the probe's
// own error, or how it ended; kNotFound when there is no GPU; kTimeout.
Result<Inventory> probe(Launcher& launcher, const std::string& worker_program,
                        const std::string& driver,
                        const std::vector<std::pair<std::string, std::string>>& environment);

}  // namespace fargpu::server

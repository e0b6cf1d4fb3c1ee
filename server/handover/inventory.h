// What a host has: its driver and its GPUs, as a probe (`fargpu-worker --probe`) tells it in lines
// of text. The daemon itself never opens a driver, so that none can hang it, crash it or hold a
// GPU.
//
//   driver <version> <path>
//   gpu <uuid> <bytes> <least> <greatest priority> <name>
//   error <why>
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "server/placement/pool.h"

namespace fargpu::server {

struct Inventory {
  std::string driver_path;
  int driver_version = 0;  // cuDriverGetVersion: 13000
  std::vector<Gpu> gpus;
};

std::string format_inventory(const Inventory& inventory);
// kDriver with the probe's own words for an error line; kProtocol for lines that make no sense;
// kNotFound when there is no GPU.
Result<Inventory> parse_inventory(std::string_view text);

// Runs the probe. `driver`: "auto", "sim" or a path.
Result<Inventory> probe(const std::string& worker_program, const std::string& driver,
                        const std::vector<std::pair<std::string, std::string>>& environment);

}  // namespace fargpu::server

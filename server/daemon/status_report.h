// The answer to a status query: GPUs, jobs and sessions.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "server/daemon/sessions.h"
#include "server/handover/inventory.h"
#include "server/job/jobs.h"
#include "server/placement/placement.h"

namespace fargpu::server {

struct StatusReport {
  const Inventory& inventory;
  const Placement& placement;
  const Jobs& jobs;
  const Sessions& sessions;
  std::chrono::steady_clock::time_point started;
};

// A whole frame of at most `max_body_bytes`; if need be without some jobs, then sessions.
std::vector<std::byte> encode_status(uint32_t sequence, const StatusReport& report,
                                     uint32_t max_body_bytes);

}  // namespace fargpu::server

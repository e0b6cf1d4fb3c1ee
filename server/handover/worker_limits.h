// What a worker may take from its host, beyond the GPU: set by the worker itself before it opens
// the driver, from what its daemon says.
#pragma once

#include <cstdint>

namespace fargpu::server {

struct WorkerLimits {
  uint32_t open_files = 4096;  // RLIMIT_NOFILE; never above what the daemon itself may have
  // oom_score_adj, 0 to 1000: out of memory, the system ends a worker, not the daemon. Never below
  // the daemon's own.
  uint32_t oom_score = 500;
  bool core_dumps = false;  // a crash leaves a core file (as the system's core pattern says)
};

// In the calling process. What the system does not allow is logged and left as it is: no reason to
// refuse a session.
void apply(const WorkerLimits& limits);

}  // namespace fargpu::server

// Limits of a worker on its host, apart from the GPU. The worker sets them before it opens the
// driver; the daemon's configuration says them.
#pragma once

#include <cstdint>

namespace fargpu::server {

struct WorkerLimits {
  uint32_t open_files = 4096;  // RLIMIT_NOFILE; never above the daemon's own limit
  // oom_score_adj, 0 to 1000: the higher, the sooner the kernel kills the worker when memory runs
  // out, rather than the daemon. Never below the daemon's own.
  uint32_t oom_score = 500;
  bool core_dumps = false;  // a crash leaves a core file (as the system's core pattern says)
};

// For the calling process. A limit that the system does not allow is logged and left as it is; the
// session goes on.
void apply(const WorkerLimits& limits);

}  // namespace fargpu::server

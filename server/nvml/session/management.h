// A management session: NVML for one program, limited to its job's GPUs and memory. It opens no
// CUDA driver and takes no memory.
#pragma once

#include <functional>

#include "common/base/status.h"
#include "server/handover/worker_options.h"

namespace fargpu::server {

// In the worker's process, with its inherited descriptors: answers the hello, then calls, until the
// client says bye (ok), is gone (kLost) or breaks the protocol. A session that cannot begin is
// refused, with the returned error. `stuck`: ends the process; called on another thread when the
// client has gone and a call of NVML, nvmlInit too, does not return.
Status run_management(const WorkerOptions& options, const std::function<void()>& stuck);

}  // namespace fargpu::server

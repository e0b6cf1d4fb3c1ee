// A green context: streams of its device's primary context that belong together, and the
// multiprocessors they were promised. All else - memory, modules, events, limits, the sticky
// error - is the primary context's. The simulated GPU shares its multiprocessors all the same.
//
// CUgreenCtx and the CUcontext made from it are the same number. Thread safe but for `alive`, which
// changes once.
#pragma once

#include <cuda.h>

#include <atomic>
#include <memory>
#include <vector>

#include "sim/base/completion.h"
#include "sim/base/registry.h"
#include "sim/driver/device_resource.h"

namespace fargpu::sim {

class Context;
struct Stream;

// The result of cuDevResourceGenerateDesc. Never destroyed: the API has no function for it.
struct ResourceDescription {
  static constexpr ObjectKind kKind = ObjectKind::kResourceDescription;
  Partition partition;
};

struct GreenContext {
  static constexpr ObjectKind kKind = ObjectKind::kGreenContext;

  uint64_t handle = 0;
  uint64_t id = 0;  // cuGreenCtxGetId
  std::shared_ptr<Context> primary;
  Partition partition;
  std::shared_ptr<Stream> default_stream;
  std::atomic<bool> alive{true};
  std::vector<Fence> gates;  // its later work waits for these; guarded by the context's submission
};

}  // namespace fargpu::sim

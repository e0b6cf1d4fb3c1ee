// How long a waiting end looks before it sleeps. Both ends read FARGPU_SPIN, each for itself.
#pragma once

#include <chrono>

#include "common/base/status.h"

namespace fargpu::transport {

// 50 us where there are cores to spare, else 0: spinning takes a core from whom it may be waiting for.
std::chrono::microseconds usual_spin();
// FARGPU_SPIN ("20us", "0"), or the usual time when it is not set. kInvalidArgument: not a time.
Result<std::chrono::microseconds> spin_from_environment();

}  // namespace fargpu::transport

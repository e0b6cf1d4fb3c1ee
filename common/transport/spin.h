// How long a waiting end spins before it sleeps. Both ends read FARGPU_SPIN, each for itself.
//
// Waking a thread costs 15 to 100 us, more than most calls take. A client spins only while a call
// of the application waits; natively the driver spins there as well. A worker spins for a moment
// after each frame, since the next one is usually near. Neither spins while a session is idle.
#pragma once

#include <chrono>

#include "common/base/status.h"

namespace fargpu::transport {

enum class SpinningEnd { kClient, kWorker };

// 2 ms for a client and 200 us for a worker where there are cores to spare, else 0: spinning could
// take the core away from the very thread that it waits for.
std::chrono::microseconds usual_spin(SpinningEnd end);
// FARGPU_SPIN ("20us", "0"), or the usual time when it is not set. kInvalidArgument: not a time.
Result<std::chrono::microseconds> spin_from_environment(SpinningEnd end);

// One round of a spin loop.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace fargpu::transport

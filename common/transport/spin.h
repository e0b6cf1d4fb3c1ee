// How long a waiting end looks before it sleeps. Both ends read FARGPU_SPIN, each for itself.
//
// Waking a thread costs 15 to 100 us, more than most calls take. A client looks only while a call
// of the application waits, which natively spins as well; a worker looks on for a moment after each
// frame, since the next one is usually near. Neither looks while nothing goes on.
#pragma once

#include <chrono>

#include "common/base/status.h"

namespace fargpu::transport {

enum class SpinningEnd { kClient, kWorker };

// 2 ms for a client and 200 us for a worker where there are cores to spare, else 0: spinning takes
// a core from whom it may be waiting for.
std::chrono::microseconds usual_spin(SpinningEnd end);
// FARGPU_SPIN ("20us", "0"), or the usual time when it is not set. kInvalidArgument: not a time.
Result<std::chrono::microseconds> spin_from_environment(SpinningEnd end);

// One round of looking without sleeping.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace fargpu::transport

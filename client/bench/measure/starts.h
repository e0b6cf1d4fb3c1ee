// Measurements that need fresh processes: how a session starts, and many sessions at once. The
// process that asks must not have loaded the driver, and has one thread.
#pragma once

#include "client/bench/figures/exchange.h"

namespace fargpu::bench {

// Records session_start, first_kernel, image_load_cold and image_load_cached; or the reason why
// there are none. Throws Failed.
Answer measure_start();

// `count` processes call at once, each in a session of its own. Throws Failed, also when they have
// not all started after a minute.
Answer measure_sessions(const Question& question);

}  // namespace fargpu::bench

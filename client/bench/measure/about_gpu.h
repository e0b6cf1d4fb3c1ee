// The properties of a GPU that affect figures: its name, driver, clocks and power state. NVML says
// most of it, where it can be loaded.
#pragma once

#include "client/bench/figures/json.h"

namespace fargpu::bench {

// After load_driver() and cuInit. Unknown members are left out.
Json about_gpu();

}  // namespace fargpu::bench

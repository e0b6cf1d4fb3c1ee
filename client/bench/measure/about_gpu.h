// What a GPU's figures depend on: its name, driver, clocks and power state. NVML says most of it,
// where it can be loaded.
#pragma once

#include "client/bench/figures/json.h"

namespace fargpu::bench {

// After load_driver() and cuInit. Members that nobody can tell are left out.
Json about_gpu();

}  // namespace fargpu::bench

// The answer of exported functions that are not simulated. For a file that knows no prototypes.
#pragma once

#include "schema/nvml/basic.h"

namespace fargpu::sim::nvml {

// `error`, or NVML_ERROR_UNINITIALIZED.
nvmlReturn_t refuse(nvmlReturn_t error);

}  // namespace fargpu::sim::nvml

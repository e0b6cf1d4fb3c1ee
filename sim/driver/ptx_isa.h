// PTX of a later toolkit than the simulated driver's. A real driver takes none of it. Here a text
// is taken where all of it can be executed, since NVRTC writes its newest ISA for any kernel.
#pragma once

#include <cuda.h>

#include <string>
#include <vector>

#include "sim/exec/engine.h"

namespace fargpu::sim {

// CUDA_ERROR_UNSUPPORTED_PTX_VERSION, and why: no toolkit of today writes such a version.
CUresult check_isa(const std::vector<std::string>& texts, std::string* problem);

// The error of texts that were refused for `error`, and why. Of an ISA that this driver does not
// know, what cannot be executed is CUDA_ERROR_UNSUPPORTED_PTX_VERSION.
CUresult refused(const LoadError& error, const std::vector<std::string>& texts,
                 std::string* problem);

}  // namespace fargpu::sim

// PTX of a later toolkit than the simulated driver's. A real driver refuses such PTX. The simulator
// accepts PTX whose instructions it can execute, since NVRTC writes its newest ISA for any kernel.
#pragma once

#include <cuda.h>

#include <string>
#include <vector>

#include "sim/exec/engine.h"

namespace fargpu::sim {

// CUDA_ERROR_UNSUPPORTED_PTX_VERSION, and why: no toolkit of today writes such a version.
CUresult check_isa(const std::vector<std::string>& texts, std::string* problem);

// The error of texts that were refused for `error`, and why. With an ISA that this driver does not
// know, unknown instructions are CUDA_ERROR_UNSUPPORTED_PTX_VERSION.
CUresult refused(const LoadError& error, const std::vector<std::string>& texts,
                 std::string* problem);

}  // namespace fargpu::sim

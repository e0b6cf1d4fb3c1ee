// The formats that cuModuleLoadData and similar calls accept behind a pointer without a length: a
// fat binary wrapper, a container, a cubin (refused) or PTX text. The pointer must be valid for as
// many bytes as the headers announce, or up to the NUL of a text, as in CUDA.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"

namespace fargpu::sim {

// The PTX texts of an image for a device, to be linked into one module; usually one. kNotFound: it
// has no PTX for this device; kInvalidArgument: it is damaged or of no known kind.
Result<std::vector<std::string>> read_image(const void* image, int compute_capability);

}  // namespace fargpu::sim

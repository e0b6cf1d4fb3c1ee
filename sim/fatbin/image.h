// The formats that cuModuleLoadData and similar calls accept behind a pointer without a length: a
// fat binary wrapper, a container, a cubin (refused) or PTX text. The pointer must be valid for as
// many bytes as the headers announce, or up to the NUL of a text, as in CUDA.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/fatbin/fatbin.h"

namespace fargpu::sim {

// The PTX texts of an image for a device, to be linked into one module; usually one. kNotFound: it
// has no PTX for this device; kInvalidArgument: it is damaged or of no known kind.
Result<std::vector<std::string>> read_image(const void* image, int compute_capability);

// The PTX text of a container's entries that suits a device best: the highest arch not above its
// capability. kNotFound when there is none; the message lists the existing entries.
Result<std::string> select_ptx(std::span<const FatbinEntry> entries, int compute_capability);

}  // namespace fargpu::sim

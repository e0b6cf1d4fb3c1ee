// An array as a side of a copy.
#pragma once

#include <cuda.h>

#include "sim/work/copy.h"

namespace fargpu::sim {

// From so many bytes, rows and slices (or layers) on; the copy's extents are set. INVALID_HANDLE:
// no array; INVALID_VALUE: NULL, or the copy runs out of it, or has a part of an element.
CUresult set_array(CUarray handle, uint64_t x, uint64_t y, uint64_t z, const Copy& copy,
                   CopySide* side);

}  // namespace fargpu::sim

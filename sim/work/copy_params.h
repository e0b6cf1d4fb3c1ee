// A copy as a program describes it, as a Copy.
#pragma once

#include <cuda.h>

#include "sim/work/copy.h"

namespace fargpu::sim {

// INVALID_VALUE: a level of detail other than 0, a type of memory that there is not, a pitch or a
// height below the part's, or a size that overflows; else as set_array().
CUresult to_copy(const CUDA_MEMCPY2D& params, Copy* copy);
CUresult to_copy(const CUDA_MEMCPY3D& params, Copy* copy);
CUresult to_copy(const CUDA_MEMCPY3D_PEER& params, Copy* copy);

// base + z * slice + y * pitch + x. A pitch of 0 means rows, a height of 0 slices that end where
// the part does that is copied. False: that part does not fit, or overflow.
bool place_side(CopySide* side, size_t x, size_t y, size_t z, size_t pitch, size_t rows,
                const Copy& copy);

}  // namespace fargpu::sim

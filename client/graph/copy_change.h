// The allowed changes of a copy node in an executable graph, for cases that the driver cannot
// judge: it gets other memory types, and other memory where the copy uses ordinary memory
// (host_copy.h).
#pragma once

#include <cuda.h>

namespace fargpu::client {

// Natively memory types cannot change, and a copy of several rows or slices cannot change at all.
bool may_become(const CUDA_MEMCPY3D& was, const CUDA_MEMCPY3D& is);

}  // namespace fargpu::client

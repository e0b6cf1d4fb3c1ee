// What of a copy node may change in an executable graph, where a driver does not know: it gets
// other memory types, and other memory where the copy uses ordinary memory (host_copy.h).
#pragma once

#include <cuda.h>

namespace fargpu::client {

// Natively memory types stay, and of a copy of several rows or slices everything does.
bool may_become(const CUDA_MEMCPY3D& was, const CUDA_MEMCPY3D& is);

}  // namespace fargpu::client

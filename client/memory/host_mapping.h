// Host memory seen by device code: the mirror of a region in the worker, made on demand; memory
// that is shared with the worker needs none. Any thread; needs a current context.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "client/memory/address_map.h"

namespace fargpu::client {

class Session;

// Gives the region a mirror unless it has one. CUDA_ERROR_OUT_OF_MEMORY when the worker cannot have
// memory at those addresses.
CUresult map_host(Session& session, const Region& region, uint64_t* device_pointer);
// Waits for work that may use the mirror, then takes it away; nothing when there is none.
CUresult unmap_host(Session& session, const Region& region);
// Maps every region of host memory of ours that a word of the packed kernel parameters points into.
// Natively all pinned memory is accessible to kernels without a call.
CUresult map_pointers(Session& session, const std::byte* parameters, size_t bytes);

}  // namespace fargpu::client

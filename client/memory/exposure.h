// Exposed host memory: memory of the application that device code can reach. Memory that is shared
// with the worker always is; other memory gets a mirror in the worker (Pages) when its address may
// come to a device. What is not exposed costs nothing at launches and synchronisations. Any thread;
// a context is current.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "client/memory/address_map.h"

namespace fargpu::client {

class Session;

// Exposes the region unless it is. CUDA_ERROR_OUT_OF_MEMORY when the worker cannot have memory at
// those addresses.
CUresult expose(Session& session, const Region& region, uint64_t* device_pointer);
// The application ends the memory: waits for work that may use it, brings back what that wrote, and
// takes the mirror away; nothing when there is none.
CUresult withdraw(Session& session, const Region& region);
// Exposes every region that a word of the packed kernel parameters points into. Natively all pinned
// memory is accessible to kernels without a call.
CUresult expose_pointers(Session& session, const std::byte* parameters, size_t bytes);

// Whether device code may write some of these bytes of host memory at any time.
bool device_may_write(Session& session, uint64_t address, uint64_t bytes);

}  // namespace fargpu::client

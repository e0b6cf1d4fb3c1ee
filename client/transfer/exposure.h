// Exposed host memory: pinned and registered memory of the application that device code can reach.
// Memory that is shared with the worker is always exposed. Other memory is hidden at first and
// costs nothing at launches and synchronisations. It gets a mirror in the worker (Pages) when a
// device is given its address:
//   - it is allocated or registered with DEVICEMAP, or passed to cuMemHostGetDevicePointer;
//   - it is an operand of a driver call that takes a device address (copies that name it as device
//     memory, memsets, stream memory operations);
//   - a word of a kernel's parameters points into it;
//   - an aligned word points into it that is copied from the host to a device (in copies of up to
//     kMostScanned bytes), is part of exposed memory that is pushed, or is given to
//     cuStreamWriteValue64;
//   - memory is registered where exposed memory was registered before.
// Any thread; needs a current context, except for what is found in exposed memory.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "client/memory/address_map.h"
#include "common/copy/shape.h"

namespace fargpu::client {

class Session;

inline constexpr size_t kMostScanned = 1u << 20;

// Exposes the region, if it is not exposed yet. CUDA_ERROR_OUT_OF_MEMORY when the worker cannot
// have memory at those addresses.
CUresult expose(Session& session, const Region& region, uint64_t* device_pointer);
// Exposes the regions of these operands of a driver call, where they are host memory.
CUresult expose_operands(Session& session, std::initializer_list<CUdeviceptr> addresses);
// Exposes regions that aligned words point into: packed kernel parameters and the like.
CUresult expose_words(Session& session, const void* words, size_t bytes);
// The same for bytes that are about to be copied from the host to a device.
CUresult expose_copied(Session& session, const copy::Rows& device, const copy::Rows& host,
                       const copy::Shape& shape);
CUresult expose_region_at(Session& session, uint64_t base);

// The application has new memory of this kind that is not shared. CUDA_ERROR_NOT_SUPPORTED (the log
// names the addresses): the worker has something else at the addresses of registered memory, so
// device code could never use it by its host pointer.
CUresult enter(Session& session, const Region& region);
// The application ends the memory. Waits for work that may use it, fetches what that wrote, and
// ends the mirror, if there is one.
CUresult withdraw(Session& session, const Region& region);

}  // namespace fargpu::client

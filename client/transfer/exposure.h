// Exposed host memory: pinned and registered memory of the application that device code can reach.
// Memory that is shared with the worker always is. Other memory is hidden at first and costs
// nothing at launches and synchronisations; it gets a mirror in the worker (Pages) when its address
// comes to a device:
//   - it is allocated or registered with DEVICEMAP, or cuMemHostGetDevicePointer is asked for it;
//   - it is an operand of a driver call that takes a device address (copies that name it as device
//     memory, memsets, stream memory operations);
//   - a word of a kernel's parameters points into it;
//   - an aligned word of what is copied from the host to a device points into it, in copies of up
//     to kMostScanned bytes; or of exposed memory that is sent, or of cuStreamWriteValue64.
// Any thread; a context is current, but for what is found in exposed memory.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "client/memory/address_map.h"

namespace fargpu::client {

class Session;
struct Box;
struct Side;

inline constexpr size_t kMostScanned = 1u << 20;

// Exposes the region unless it is. CUDA_ERROR_OUT_OF_MEMORY when the worker cannot have memory at
// those addresses.
CUresult expose(Session& session, const Region& region, uint64_t* device_pointer);
// The regions of these device addresses that a driver call got, if they are host memory.
CUresult expose_operands(Session& session, std::initializer_list<CUdeviceptr> addresses);
// Regions that aligned words point into: packed kernel parameters and the like.
CUresult expose_words(Session& session, const void* words, size_t bytes);
// The same for what is about to be copied from the host to a device.
CUresult expose_copied(Session& session, const Side& device, const Side& host, const Box& box);
CUresult expose_region_at(Session& session, uint64_t base);

// The application has new memory of this kind that is not shared. CUDA_ERROR_NOT_SUPPORTED, which
// names the addresses in the log: the worker has something else at those of registered memory, so
// that device code could never use it by its host pointer.
CUresult enter(Session& session, const Region& region);
// The application ends the memory: waits for work that may use it, brings back what that wrote, and
// takes the mirror away; nothing when there is none.
CUresult withdraw(Session& session, const Region& region);

// Whether device code may write some of these bytes of host memory at any time.
bool device_may_write(Session& session, uint64_t address, uint64_t bytes);
// Whether the worker has all of these bytes for device code, by a mirror: work in streams reads and
// writes them there.
bool is_mirrored(Session& session, uint64_t address, uint64_t bytes);

}  // namespace fargpu::client

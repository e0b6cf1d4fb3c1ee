// Copies between pageable memory and the device through a staging ring: pipelined, so that the
// CPU's copy and the GPU's overlap.
//
// Any thread; needs a current context. What they promise is what copy.h says of pageable memory.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "client/memory/staging_ring.h"
#include "client/transfer/copy.h"

namespace fargpu::client {

class SynchronousCopy;

// Up to here the bytes travel in the frame: one call and no waiting, like the driver, which takes
// up to 64 KiB of pageable memory at once.
inline constexpr size_t kStagedFrom = (64u << 10) + 1;

// The current context's ring when this copy should go through one; null: it travels in frames.
std::shared_ptr<StagingRing> ring_for(Session& session, const Box& box);

// What happens to a piece for which no slot is free. kInFrames: after a while it travels in a
// frame. kFetched: at once it is left to be fetched when the stream reaches it (ordered_copy.h), so
// the caller does not wait.
enum class Overflow : uint8_t { kInFrames, kFetched };

// The source may change when this returns, except for pieces that are left to be fetched.
CUresult staged_to_device(Session& session, StagingRing& ring, const Side& dst, const Side& src,
                          const Box& box, CUstream stream, const SynchronousCopy& synchronous,
                          Overflow overflow);
// The bytes are there when this returns.
CUresult staged_to_host(Session& session, StagingRing& ring, const Side& dst, const Side& src,
                        const Box& box, CUstream stream);

}  // namespace fargpu::client

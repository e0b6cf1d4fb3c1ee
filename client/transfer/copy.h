// Copies in every direction between the application's memory and device memory.
//
// A copy is a box between two sides (pack.h). The caller knows which side is host and which is
// device; classify() finds out. Large boxes travel in pieces. Ranges of known allocations are
// checked before anything is sent. Any thread; needs a current context.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "client/copy/pack.h"

namespace fargpu::client {

class Session;

enum class Where { kDevice, kHost };
// Device memory by the table of allocations; everything else that can be read here is host memory.
Where classify(Session& session, uint64_t address);

// CUDA_ERROR_INVALID_VALUE when the range begins in a known allocation and runs out of it, or that
// allocation is one of another session.
// `*known`: it lies in known ones.
CUresult check_device_range(Session& session, uint64_t address, uint64_t bytes, bool* known);

// After work on a range was sent: mapped virtual memory may not be accessible yet, so the first
// operation on it is awaited.
CUresult settle_untried(Session& session, uint64_t address, uint64_t bytes);

// When a copy to the device reads host memory that the driver knows: when its stream has come to
// it, or before the call returns.
enum class SourceAccess : uint8_t { kInStream, kDuringCall };

// `stream`: as the application gave it. Memory that the driver knows is copied in stream order, and
// only `wait` makes these return after it. Other sources have been taken when this returns; `wait`:
// an error of an unknown destination is awaited.
CUresult copy_to_device(Session& session, const Side& dst, const Side& src, const Box& box,
                        CUstream stream, bool wait, SourceAccess access = SourceAccess::kInStream);
// To memory that the driver does not know: returns when the bytes are there.
CUresult copy_to_host(Session& session, const Side& dst, const Side& src, const Box& box,
                      CUstream stream, bool wait);
// In stream order, then at once.
CUresult copy_on_host(Session& session, const Side& dst, const Side& src, const Box& box,
                      CUstream stream);

}  // namespace fargpu::client

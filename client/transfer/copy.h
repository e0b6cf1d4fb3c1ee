// Copies in every direction between the application's memory and device memory.
//
// A copy is a shape between two ends (common/copy/shape.h, endpoint.h), which may be arrays. Ranges
// of known allocations are checked before anything is sent. Large shapes travel in pieces. Any
// thread; needs a current context.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "client/entry/call.h"
#include "client/transfer/endpoint.h"

namespace fargpu::client {

// When a copy to the device reads host memory that the driver knows: when its stream has come to
// it, or before the call returns.
enum class SourceAccess : uint8_t { kInStream, kDuringCall };

// One end is device memory. `stream`: as the application gave it. Memory that the driver knows is
// copied in stream order, and only `wait` makes these return after it. Other sources have been
// taken when this returns, and other host memory has the bytes; `wait`: an error of an unknown
// destination is awaited.
CUresult copy_to_device(const CallTarget& target, const Endpoint& dst, const Endpoint& src,
                        const copy::Shape& shape, CUstream stream, bool wait,
                        SourceAccess access = SourceAccess::kInStream);
CUresult copy_to_host(const CallTarget& target, const Endpoint& dst, const Endpoint& src,
                      const copy::Shape& shape, CUstream stream, bool wait);
// Between two device ends, at least one of which is an array.
CUresult copy_inside(const CallTarget& target, const Endpoint& dst, const Endpoint& src,
                     const copy::Shape& shape, CUstream stream);
// Whether the copy is between host memory, and of a possible shape. CUDA documents that such a copy
// is over when its call returns, in whatever form. A driver waits for the stream inside the call,
// so the worker must never make it: what the stream waits for may have to come from there.
bool is_on_host(const Session& session, const Endpoint& dst, const Endpoint& src,
                const copy::Shape& shape);
// That copy: behind what is in the stream, by this thread.
CUresult copy_on_host(const CallTarget& target, const Endpoint& dst, const Endpoint& src,
                      const copy::Shape& shape, CUstream stream);
// False: of memory that the application has registered as read-only.
bool may_write(const Session& session, const Endpoint& end);

}  // namespace fargpu::client

// Copies of device memory from one server to another. The bytes pass through this process, piece by
// piece: one is read while the one before it is written.
//
// In a stream of the application's own the copy is in the stream's order, and the call returns at
// once (HeldStreams). In a default stream it is ordered behind everything in both contexts, and the
// call returns when the bytes are there. Any thread; needs a current context.
#pragma once

#include <cuda.h>

#include "client/transfer/endpoint.h"

namespace fargpu::client {

// Both ends are known device memory, of two servers.
inline bool are_of_two_servers(const Endpoint& dst, const Endpoint& src) {
  return dst.region && src.region && dst.session() != src.session();
}
// CUDA_ERROR_INVALID_VALUE: a side runs out of its memory.
CUresult copy_between_servers(const Endpoint& dst, const Endpoint& src, const copy::Shape& shape,
                              CUstream stream);

}  // namespace fargpu::client

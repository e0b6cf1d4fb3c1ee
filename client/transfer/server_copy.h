// Copies of device memory from one server to another. The bytes pass through this process, piece by
// piece: one is read while the one before it is written.
//
// In a stream of the application's own the copy is in the stream's order, and the call returns at
// once (HeldStreams). In a default stream it is ordered behind everything in both contexts, and the
// call returns when the bytes are there. Any thread; needs a current context.
#pragma once

#include <cuda.h>

#include "client/copy/pack.h"

namespace fargpu::client {

// Both addresses are known device memory, of two servers. One load with one server.
bool are_of_two_servers(CUdeviceptr dst, CUdeviceptr src);
// CUDA_ERROR_INVALID_VALUE: a side runs out of its memory.
CUresult copy_between_servers(const Side& dst, const Side& src, const Box& box, CUstream stream);

}  // namespace fargpu::client

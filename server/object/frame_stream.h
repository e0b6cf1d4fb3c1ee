// FrameStream: a stream as frames name it.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace fargpu::server {

// `context` is the one it lives in; the ids of the default streams (0 is the legacy one too) mean
// another stream in each context.
struct FrameStream {
  uint64_t id = 0;
  uint16_t context = 0;
  CUstream handle = nullptr;
};

}  // namespace fargpu::server

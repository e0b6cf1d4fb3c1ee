// FrameStream: a stream as frames name it.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace fargpu::server {

// The largest id of a default stream: CU_STREAM_PER_THREAD.
inline constexpr uint64_t kPerThreadStreamId = 2;

// `context` is the one it lives in; the ids of the default streams (0 is the legacy one too) mean
// another stream in each context.
struct FrameStream {
  uint64_t id = 0;
  uint16_t context = 0;
  CUstream handle = nullptr;
};

}  // namespace fargpu::server

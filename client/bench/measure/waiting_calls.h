// Calls that wait for the server, and the meaning of their answers: measured alone, and while
// copies run.
#pragma once

#include "client/bench/measure/driver.h"
#include "client/bench/measure/gpu.h"

namespace fargpu::bench {

// That all work in the stream is done; there is none.
inline void query_stream(Gpu& gpu) { NEED(cuStreamQuery(gpu.stream())); }

// Nothing about any stream.
inline void get_limit() {
  size_t bytes = 0;
  NEED(cuCtxGetLimit(&bytes, CU_LIMIT_MALLOC_HEAP_SIZE));
}

}  // namespace fargpu::bench

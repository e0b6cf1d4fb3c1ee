// Host functions and stream callbacks: run once, in stream order, with what was given to them.
#include <atomic>

#include "tests/conformance/conformance.h"

namespace {

struct Log {
  std::vector<int> entries;
} order;

void CUDA_CB host_function(void* data) {
  order.entries.push_back(static_cast<int>(reinterpret_cast<intptr_t>(data)));
}

void CUDA_CB callback(CUstream, CUresult status, void* data) {
  order.entries.push_back(1000 * static_cast<int>(status) +
                          static_cast<int>(reinterpret_cast<intptr_t>(data)));
}

void CUDA_CB read_value(void* data) {
  // Runs after the copy before it in the stream.
  order.entries.push_back(*static_cast<int*>(data));
}

}  // namespace

int main() {
  make_context();
  CUstream stream;
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (intptr_t i = 0; i < 20; ++i) {
    if (i % 3 == 0) {
      NEED(cuStreamAddCallback(stream, callback, reinterpret_cast<void*>(i), 0));
    } else {
      NEED(cuLaunchHostFunc(stream, host_function, reinterpret_cast<void*>(i)));
    }
  }
  SHOW(cuStreamSynchronize(stream));
  for (int entry : order.entries) std::printf(" %d", entry);
  std::printf("\n");

  order.entries.clear();
  CUdeviceptr p;
  NEED(cuMemAlloc(&p, 4));
  int* host;
  NEED(cuMemAllocHost(reinterpret_cast<void**>(&host), 4));
  for (int i = 0; i < 5; ++i) {
    NEED(cuMemsetD32Async(p, 100 + i, 1, stream));
    NEED(cuMemcpyDtoHAsync(host, p, 4, stream));
    NEED(cuLaunchHostFunc(stream, read_value, host));
  }
  SHOW(cuStreamSynchronize(stream));
  for (int entry : order.entries) std::printf(" %d", entry);
  std::printf("\n");
  SHOW(cuLaunchHostFunc(stream, nullptr, nullptr));
  SHOW(cuStreamAddCallback(stream, nullptr, nullptr, 0));
  SHOW(cuStreamAddCallback(stream, callback, nullptr, 1));

  // The default stream, and an event recorded after the function.
  order.entries.clear();
  CUevent event;
  NEED(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  SHOW(cuLaunchHostFunc(nullptr, host_function, reinterpret_cast<void*>(intptr_t{7})));
  SHOW(cuEventRecord(event, nullptr));
  SHOW(cuEventSynchronize(event));
  VALUE(order.entries.size());
  SHOW(cuStreamDestroy(stream));
  return 0;
}

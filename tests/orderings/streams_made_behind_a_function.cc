// A function of the application waits for work in streams that are made while it runs: of every
// kind that the program has made before, in two contexts, and in the stream of a new thread. A
// driver waits for functions where it makes streams at times; the function returns all the same.
#include <atomic>
#include <thread>

#include "tests/orderings/check.h"

namespace {

std::atomic<bool> running{false}, released{false};

void CUDA_CB wait_for_release(void*) {
  running = true;
  while (!released) usleep(200);
  running = false;
}

unsigned value_at(CUdeviceptr at, CUstream stream) {
  unsigned value = 0;
  CU(cuMemcpyDtoHAsync(&value, at, sizeof value, stream));
  CU(cuStreamSynchronize(stream));
  return value;
}

void work_in(CUstream stream, CUdeviceptr at, unsigned value) {
  CU(cuMemsetD32Async(at, value, 1, stream));
  HOLDS(value_at(at, stream) == value);
}

// Streams of each kind, with work in them.
void make_streams(CUdeviceptr at, unsigned round) {
  for (unsigned i = 0; i < 2; ++i) {
    CUstream streams[3];
    CU(cuStreamCreate(&streams[0], CU_STREAM_NON_BLOCKING));
    CU(cuStreamCreate(&streams[1], CU_STREAM_DEFAULT));
    CU(cuStreamCreateWithPriority(&streams[2], CU_STREAM_NON_BLOCKING, -1));
    int priority = 0;
    unsigned flags = 0;
    CU(cuStreamGetPriority(streams[2], &priority));
    HOLDS(priority == -1);
    CU(cuStreamGetFlags(streams[1], &flags));
    HOLDS(flags == CU_STREAM_DEFAULT);
    CU(cuStreamGetFlags(streams[0], &flags));
    HOLDS(flags == CU_STREAM_NON_BLOCKING);
    for (const CUstream stream : streams) work_in(stream, at, 10 * round + i);
    for (const CUstream stream : streams) CU(cuStreamDestroy(stream));
  }
}

}  // namespace

int main() {
  begin();
  const CUcontext first = use_primary();
  const CUdeviceptr at = device_memory(64);
  const CUstream busy = make_stream();
  CUstream urgent;
  CU(cuStreamCreateWithPriority(&urgent, CU_STREAM_NON_BLOCKING, -1));
  const CUcontext second = new_context();
  const CUdeviceptr other = device_memory(64);
  CU(cuStreamCreateWithPriority(&urgent, CU_STREAM_NON_BLOCKING, -1));
  CU(cuCtxSetCurrent(first));
  for (unsigned round = 1; round <= 3; ++round) {
    step("a function that waits for other streams");
    released = false;
    CU(cuLaunchHostFunc(busy, wait_for_release, nullptr));
    while (!running) usleep(200);
    step("streams made behind it");
    make_streams(at, round);
    step("streams made behind it in another context");
    CU(cuCtxSetCurrent(second));
    make_streams(other, round);
    CU(cuCtxSetCurrent(first));
    step("the stream of a new thread");
    std::thread thread([&] {
      CU(cuCtxSetCurrent(first));
      work_in(CU_STREAM_PER_THREAD, at, 1000 + round);
    });
    thread.join();
    HOLDS(running);
    step("the end of the function");
    released = true;
    CU(cuStreamSynchronize(busy));
  }
  right();
}

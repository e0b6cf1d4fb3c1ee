// sim: FARGPU_SIM_STREAM_WAITS=1
// A driver may wait for what runs when it makes a stream. One is made, and its work runs, although
// a function of the application runs for long, in any of the ways to make one.
#include <atomic>
#include <thread>

#include "tests/orderings/check.h"

namespace {

std::atomic<bool> running{false};

void CUDA_CB run_for_long(void*) {
  running = true;
  usleep(1500000);
  running = false;
}

}  // namespace

int main() {
  begin();
  const CUcontext context = use_primary();
  const CUfunction load = kernel_of(load_kernels(), "load");
  const CUdeviceptr memory = device_memory(64);
  const CUstream busy = make_stream();
  for (int round = 0; round < 3; ++round) {
    step("a function that runs for long");
    CU(cuLaunchHostFunc(busy, run_for_long, nullptr));
    while (!running) usleep(1000);
    step("making streams beside it");
    CUstream streams[2];
    if (round == 0) {
      CU(cuStreamCreate(&streams[0], CU_STREAM_NON_BLOCKING));
      CU(cuStreamCreateWithPriority(&streams[1], CU_STREAM_DEFAULT, -1));
    } else {  // several at once
      std::thread other([&] {
        CU(cuCtxSetCurrent(context));
        CU(cuStreamCreate(&streams[0], CU_STREAM_DEFAULT));
      });
      CU(cuStreamCreateWithPriority(&streams[1], CU_STREAM_NON_BLOCKING, 0));
      other.join();
    }
    step("work in the new streams");
    for (const CUstream stream : streams) {
      CU(cuMemsetD32Async(memory, round, 2, stream));
      CU(launch(load, stream, memory, memory + 4));
      CU(cuStreamSynchronize(stream));
      CU(cuStreamDestroy(stream));
    }
    step("the end of the function");
    CU(cuStreamSynchronize(busy));
    HOLDS(!running);
  }
  right();
}

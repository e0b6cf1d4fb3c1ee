// sim: FARGPU_SIM_STREAM_WAITS=1
// A driver may wait for what runs when it makes a stream. Streams are made, and their work runs,
// although another thread always has functions of the application in a stream.
#include <atomic>
#include <thread>

#include "tests/orderings/check.h"

namespace {

void CUDA_CB pause_1_ms(void*) { usleep(1000); }

}  // namespace

int main() {
  begin();
  const CUcontext context = use_primary();
  const CUfunction load = kernel_of(load_kernels(), "load");
  const CUdeviceptr memory = device_memory(64);
  std::atomic<bool> stop{false};
  std::atomic<int> queued{0};
  std::thread feeder([&] {
    CU(cuCtxSetCurrent(context));
    const CUstream stream = make_stream();
    const CUevent done[2] = {make_event(), make_event()};
    for (int i = 0; !stop; ++i) {
      if (i >= 2) CU(cuEventSynchronize(done[i % 2]));
      CU(cuLaunchHostFunc(stream, pause_1_ms, nullptr));
      CU(cuEventRecord(done[i % 2], stream));
      queued = i + 1;
    }
    CU(cuStreamSynchronize(stream));
  });
  while (queued < 10) usleep(1000);
  for (int round = 0; round < 40; ++round) {
    step("making a stream");
    CUstream stream;
    if (round % 2 == 0) {
      CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    } else {
      CU(cuStreamCreateWithPriority(&stream, CU_STREAM_DEFAULT, -1));
    }
    step("work in a new stream");
    CU(cuMemsetD32Async(memory, round, 2, stream));
    CU(launch(load, stream, memory, memory + 4));
    CU(cuStreamSynchronize(stream));
    CU(cuStreamDestroy(stream));
  }
  const int during = queued;
  step("functions afterwards");
  while (queued < during + 10) usleep(1000);
  stop = true;
  feeder.join();
  right();
}

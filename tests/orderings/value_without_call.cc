// A stream waits for a value in host memory, and a thread that makes no call stores it, while
// another one waits for the stream.
#include <functional>
#include <thread>

#include "tests/orderings/check.h"

namespace {

CUfunction load;
CUstream stream;
CUdeviceptr result;
CUevent event;

void in_memory(int* words) {
  CUdeviceptr device = 0;
  CU(cuMemHostGetDevicePointer(&device, words, 0));
  const std::function<void()> waits[] = {
      [] { CU(cuStreamSynchronize(stream)); },
      [] { CU(cuEventSynchronize(event)); },
      [] { CU(cuCtxSynchronize()); },
      [] {
        int value = 0;
        CU(cuMemcpyDtoHAsync(&value, result, sizeof value, stream));
      },
      [] {
        while (cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) {
        }
      },
  };
  int round = 0;
  for (const auto& wait : waits) {
    ++round;
    CU(cuStreamWaitValue32(stream, device, static_cast<cuuint32_t>(round),
                           CU_STREAM_WAIT_VALUE_GEQ));
    CU(launch(load, stream, result, device + sizeof(int)));
    CU(cuEventRecord(event, stream));
    std::thread other([words, round] {
      usleep(microseconds(0.05));
      words[1] = 10 + round;
      __atomic_store_n(words, round, __ATOMIC_RELEASE);
    });
    wait();
    other.join();
    int value = 0;
    CU(cuMemcpyDtoHAsync(&value, result, sizeof value, stream));
    CU(cuStreamSynchronize(stream));
    HOLDS(value == 10 + round);
  }
}

}  // namespace

int main() {
  begin();
  use_primary();
  load = kernel_of(load_kernels(), "load");
  stream = make_stream();
  event = make_event();
  result = device_memory(64);
  // Kernels are loaded at their first launch.
  CU(launch(load, stream, result, result + 32));
  CU(cuStreamSynchronize(stream));
  step("pinned memory");
  int* pinned = nullptr;
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&pinned), 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  std::memset(pinned, 0, 4096);
  in_memory(pinned);
  CU(cuMemFreeHost(pinned));
  step("registered memory");
  static int registered[1000];
  CU(cuMemHostRegister(registered, sizeof registered, CU_MEMHOSTREGISTER_DEVICEMAP));
  in_memory(registered);
  CU(cuMemHostUnregister(registered));
  right();
}

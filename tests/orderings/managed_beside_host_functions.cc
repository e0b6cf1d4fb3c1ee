// Kernels see what the host wrote to managed memory before their launch, also while a host function
// holds another stream, and while the value that another one waits for is not there.
// sim: FARGPU_SIM_JITTER=3000
#include <atomic>

#include "tests/orderings/check.h"

namespace {

std::atomic<bool> released{false};
void CUDA_CB wait_for_release(void*) {
  while (!released) usleep(500);
}

CUfunction load;
CUdeviceptr seen;
CUstream held, working;

// Memory of the working stream alone: the host may write it while the other one is held.
struct Memory {
  int* words;
  size_t count;
};
Memory managed(size_t bytes) {
  CUdeviceptr memory;
  CU(cuMemAllocManaged(&memory, bytes, CU_MEM_ATTACH_HOST));
  CU(cuStreamAttachMemAsync(working, memory, 0, CU_MEM_ATTACH_SINGLE));
  CU(cuStreamSynchronize(working));
  return {reinterpret_cast<int*>(memory), bytes / sizeof(int)};
}

// What is sent last is looked at first.
void look(const Memory& memory, int value) {
  for (size_t i = 0; i < memory.count; i += 1024) memory.words[i] = value;
  int* const last = memory.words + (memory.count - 1) / 1024 * 1024;
  CU(launch(load, working, seen, reinterpret_cast<CUdeviceptr>(last)));
  CU(cuStreamSynchronize(working));
  int result = 0;
  CU(cuMemcpyDtoHAsync(&result, seen, sizeof result, working));
  CU(cuStreamSynchronize(working));
  if (result != value)
    wrong("a kernel read %d, not %d, in %zu bytes", result, value, memory.count * sizeof(int));
}

}  // namespace

int main() {
  begin(100);
  use_primary();
  load = kernel_of(load_kernels(), "load");
  seen = device_memory(64);
  held = make_stream(), working = make_stream();
  const CUdeviceptr told = device_memory(64);
  CU(cuMemsetD32(told, 0, 1));
  CU(launch(load, working, seen, seen));
  CU(cuCtxSynchronize());
  const Memory all[] = {managed(4096), managed(300 << 10), managed(8 << 20)};
  int value = 10;
  for (int round = 0; round < 30; ++round) {
    step("kernels beside a host function");
    released = false;
    CU(cuLaunchHostFunc(held, wait_for_release, nullptr));
    for (const Memory& memory : all) look(memory, ++value);
    released = true;
    CU(cuStreamSynchronize(held));
    step("kernels beside a wait for a value");
    CU(cuStreamWaitValue32(held, told, 1, CU_STREAM_WAIT_VALUE_EQ));
    for (const Memory& memory : all) look(memory, ++value);
    CU(cuStreamWriteValue32(working, told, 1, 0));
    CU(cuStreamSynchronize(held));
    CU(cuStreamWriteValue32(working, told, 0, 0));
    CU(cuStreamSynchronize(working));
  }
  right();
}

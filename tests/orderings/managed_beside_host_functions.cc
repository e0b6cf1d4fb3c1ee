// Kernels see what the host wrote to managed memory before their launch, also while a host function
// holds another stream, and while the value that another one waits for is not there. And what host
// functions write is seen by the kernels behind them, whatever other threads submit.
// sim: FARGPU_SIM_JITTER=3000
// again: FARGPU_TEST_USERFAULTFD=refused
#include <atomic>
#include <functional>
#include <thread>

#include "tests/orderings/check.h"

namespace {

std::atomic<bool> released{false};
void CUDA_CB wait_for_release(void*) {
  while (!released) usleep(500);
}

CUfunction load;
CUdeviceptr seen;
CUstream held, working;

// Memory of one stream alone: the host may write it while another one is held.
struct Memory {
  int* words;
  size_t count;
  int* last() const { return words + (count - 1) / 1024 * 1024; }
};
Memory managed(size_t bytes, CUstream stream = working) {
  CUdeviceptr memory;
  CU(cuMemAllocManaged(&memory, bytes, CU_MEM_ATTACH_HOST));
  CU(cuStreamAttachMemAsync(stream, memory, 0, CU_MEM_ATTACH_SINGLE));
  CU(cuStreamSynchronize(stream));
  return {reinterpret_cast<int*>(memory), bytes / sizeof(int)};
}

int read_seen() {
  int result = 0;
  CU(cuMemcpyDtoHAsync(&result, seen, sizeof result, working));
  CU(cuStreamSynchronize(working));
  return result;
}

// What is sent last is looked at first.
void look(const Memory& memory, int value) {
  for (size_t i = 0; i < memory.count; i += 1024) memory.words[i] = value;
  CU(launch(load, working, seen, memory.last()));
  CU(cuStreamSynchronize(working));
  if (const int result = read_seen(); result != value)
    wrong("a kernel read %d, not %d, in %zu bytes", result, value, memory.count * sizeof(int));
}

struct Writing {
  Memory memory;
  int value;
};
void CUDA_CB write_words(void* data) {
  const auto& [memory, value] = *static_cast<Writing*>(data);
  for (size_t i = 0; i < memory.count; i += 1024) memory.words[i] = value;
}

// Copies between managed memory, which take all of it from the host.
void copy_in(CUcontext context, const std::atomic<bool>& stop) {
  CU(cuCtxSetCurrent(context));
  const CUstream stream = make_stream();
  const auto to = reinterpret_cast<CUdeviceptr>(managed(4096, stream).words),
             from = reinterpret_cast<CUdeviceptr>(managed(4096, stream).words);
  while (!stop) {
    CU(cuMemcpyDtoDAsync(to, from, 64, stream));
    CU(cuStreamSynchronize(stream));
  }
}

void look_behind_functions(const Memory& memory, int value) {
  Writing writing{memory, value};
  CU(cuLaunchHostFunc(working, write_words, &writing));
  CU(launch(load, working, seen, memory.last()));
  CU(cuStreamSynchronize(working));
  if (const int result = read_seen(); result != value)
    wrong("behind a host function a kernel read %d, not %d, in %zu bytes", result, value,
          memory.count * sizeof(int));
}

}  // namespace

int main() {
  begin(100);
  const CUcontext context = use_primary();
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
  step("kernels behind host functions");
  std::atomic<bool> stop{false};
  std::thread other(copy_in, context, std::cref(stop));
  for (int round = 0; round < 40; ++round) {
    for (const Memory& memory : all) look_behind_functions(memory, ++value);
  }
  stop = true;
  other.join();
  right();
}

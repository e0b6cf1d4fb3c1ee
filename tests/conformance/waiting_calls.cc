// Calls in which the driver waits for what runs: while one thread sits in such a call, others go on
// in other streams, and it is one of them that lets the running work end. waiting_calls kernel |
// host_function: what holds the first stream.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "tests/conformance/conformance.h"
#include "tests/conformance/kernels.h"

namespace {

// Reads *p until it is not 0.
constexpr const char* kHold = R"ptx(
.version 7.5
.target sm_75
.address_size 64
.visible .entry hold(.param .u64 p)
{
  .reg .pred %p<2>;
  .reg .b32 %r<2>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [p];
  cvta.to.global.u64 %rd2, %rd1;
again:
  ld.volatile.global.u32 %r1, [%rd2];
  setp.eq.u32 %p1, %r1, 0;
  @%p1 bra again;
  ret;
}
)ptx";

struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  bool open = false;
};

void CUDA_CB wait_at(void* data) {
  Gate& gate = *static_cast<Gate*>(data);
  std::unique_lock lock(gate.mutex);
  gate.changed.wait(lock, [&] { return gate.open; });
}

CUcontext context;
CUmodule kernels;
CUfunction fill, hold;

// Something holds a stream; `call` runs in one thread, work goes on in another, which then lets the
// stream go. True when `call` returned before.
bool held(bool by_kernel, const char* text, const std::function<CUresult()>& call) {
  CUstream holding, working;
  NEED(cuStreamCreate(&holding, CU_STREAM_NON_BLOCKING));
  NEED(cuStreamCreate(&working, CU_STREAM_NON_BLOCKING));
  CUdeviceptr flag, memory;
  NEED(cuMemAlloc(&flag, 4));
  NEED(cuMemAlloc(&memory, 512 * 4));
  NEED(cuMemsetD32(flag, 0, 1));
  NEED(cuCtxSynchronize());  // what another stream does is not ordered after the memset
  Gate gate;
  void* hold_arguments[] = {&flag};
  if (by_kernel) {
    NEED(cuLaunchKernel(hold, 1, 1, 1, 1, 1, 1, 0, holding, hold_arguments, nullptr));
  } else {
    NEED(cuLaunchHostFunc(holding, wait_at, &gate));
  }
  std::atomic<bool> released{false}, early{false};
  CUresult result = CUDA_ERROR_UNKNOWN;
  std::thread waiting([&] {
    NEED(cuCtxSetCurrent(context));
    result = call();
    early = !released;
  });
  std::thread other([&] {
    NEED(cuCtxSetCurrent(context));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    unsigned value = 0, count = 512;
    long wrong = 0;
    std::vector<unsigned> out(count);
    for (value = 1; value <= 20; ++value) {
      void* arguments[] = {&memory, &value, &count};
      NEED(cuLaunchKernel(fill, 4, 1, 1, 128, 1, 1, 0, working, arguments, nullptr));
      NEED(cuMemcpyDtoHAsync(out.data(), memory, count * 4, working));
      NEED(cuStreamSynchronize(working));
      for (unsigned got : out) wrong += got != value;
    }
    VALUE(wrong);
    released = true;
    if (by_kernel) {
      NEED(cuMemsetD32Async(flag, 1, 1, working));
    } else {
      const std::lock_guard lock(gate.mutex);
      gate.open = true;
      gate.changed.notify_all();
    }
  });
  other.join();
  waiting.join();
  show(text, result);
  NEED(cuStreamSynchronize(holding));
  NEED(cuStreamDestroy(holding));
  NEED(cuStreamDestroy(working));
  NEED(cuMemFree(flag));
  NEED(cuMemFree(memory));
  return early;
}

}  // namespace

int main(int count, char** values) {
  const bool by_kernel = count > 1 && std::strcmp(values[1], "kernel") == 0;
  context = make_context();
  CUmodule holding;
  NEED(cuModuleLoadData(&kernels, kKernels));
  NEED(cuModuleGetFunction(&fill, kernels, "fill"));
  NEED(cuModuleLoadData(&holding, kHold));
  NEED(cuModuleGetFunction(&hold, holding, "hold"));

  std::printf("free\n");
  CUdeviceptr freed;
  NEED(cuMemAlloc(&freed, 1 << 20));
  bool early = held(by_kernel, "cuMemFree", [&] { return cuMemFree(freed); });
  VALUE(early);

  std::printf("synchronise\n");
  early = held(by_kernel, "cuCtxSynchronize", [] { return cuCtxSynchronize(); });
  VALUE(early);

  // Whether these wait is the driver's affair; they must come back.
  std::printf("unload\n");
  CUmodule unloaded;
  NEED(cuModuleLoadData(&unloaded, kKernels));
  held(by_kernel, "cuModuleUnload", [&] { return cuModuleUnload(unloaded); });

  std::printf("two threads that free\n");
  CUdeviceptr pair[2];
  for (CUdeviceptr& one : pair) NEED(cuMemAlloc(&one, 4096));
  held(by_kernel, "cuMemFree", [&] {
    CUresult results[2];
    std::thread second([&] {
      NEED(cuCtxSetCurrent(context));
      results[1] = cuMemFree(pair[1]);
    });
    results[0] = cuMemFree(pair[0]);
    second.join();
    return results[0] != CUDA_SUCCESS ? results[0] : results[1];
  });
  SHOW(cuCtxSynchronize());
  return 0;
}

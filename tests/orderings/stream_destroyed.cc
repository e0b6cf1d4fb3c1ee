// A destroyed stream finishes its work, which is part of the context's: what waits for the context
// waits for it, and other threads go on meanwhile.
#include <atomic>
#include <thread>

#include "tests/orderings/check.h"

namespace {

std::atomic<bool> held{false}, ran{false};

void CUDA_CB wait_for_release(void*) {
  while (held) usleep(1000);
  usleep(100'000);
  ran = true;
}

// A stream that is destroyed with a host function in it, which returns a while after `held` is
// false.
void leave_work_behind(bool hold) {
  held = hold;
  ran = false;
  const CUstream stream = make_stream();
  CU(cuLaunchHostFunc(stream, wait_for_release, nullptr));
  step("cuStreamDestroy with a host function in the stream");
  CU(cuStreamDestroy(stream));
}

void wait_by(const char* name, CUresult (*wait)(void*), void* argument) {
  leave_work_behind(false);
  step(name);
  CU(wait(argument));
  if (!ran) wrong("%s came back before the work of a destroyed stream was done", name);
}

}  // namespace

int main() {
  begin();
  const CUcontext context = use_primary();
  wait_by(
      "cuCtxSynchronize", [](void*) { return cuCtxSynchronize(); }, nullptr);

  // These may wait for the stream, or not; they come back.
  void* pinned = nullptr;
  CU(cuMemHostAlloc(&pinned, 1 << 16, 0));
  leave_work_behind(false);
  step("cuMemFreeHost");
  CU(cuMemFreeHost(pinned));
  const CUdeviceptr memory = device_memory(1 << 16);
  leave_work_behind(false);
  step("cuMemFree");
  CU(cuMemFree(memory));
  alignas(4096) static char page[4096];
  CU(cuMemHostRegister(page, sizeof page, 0));
  leave_work_behind(false);
  step("cuMemHostUnregister");
  CU(cuMemHostUnregister(page));
  CU(cuCtxSynchronize());

  // A thread in cuCtxSynchronize holds up nobody: the work ends because this thread goes on.
  leave_work_behind(true);
  std::thread waiter([context] {
    CU(cuCtxSetCurrent(context));
    CU(cuCtxSynchronize());
    if (!ran) wrong("cuCtxSynchronize did not wait for the work of a destroyed stream");
  });
  usleep(200'000);
  step("calls while another thread waits for the work of a destroyed stream");
  const CUstream stream = make_stream();
  const CUdeviceptr word = device_memory(sizeof(int));
  CU(cuMemsetD32Async(word, 5, 1, stream));
  int seen = 0;
  CU(cuMemcpyDtoHAsync(&seen, word, sizeof seen, stream));
  CU(cuStreamSynchronize(stream));
  HOLDS(seen == 5);
  held = false;
  step("the end of cuCtxSynchronize in another thread");
  waiter.join();

  // Many at once, some of them idle.
  step("many destroyed streams");
  for (int i = 0; i < 50; ++i) {
    const CUstream one = make_stream();
    if (i % 2 == 0)
      CU(cuLaunchHostFunc(
          one, [](void*) { usleep(2000); }, nullptr));
    CU(cuStreamDestroy(one));
  }
  CU(cuCtxSynchronize());
  right();
}

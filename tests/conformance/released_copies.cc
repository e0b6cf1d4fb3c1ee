// A synchronous copy behind a host function, or behind a wait for a value, that another thread lets
// go on: what that thread submits to other streams in the meantime does not wait for the copy.
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "tests/conformance/conformance.h"

namespace {

std::atomic<bool> released{false};

void CUDA_CB wait_for_release(void*) {
  while (!released) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

CUcontext context;
CUstream working;
CUdeviceptr word, memory;

// Copies here; the other thread does some work, waits for it, and then calls `release`.
void copy_and_release(const char* text, const void* source, const std::function<void()>& release) {
  unsigned value = 0;
  std::thread other([&] {
    NEED(cuCtxSetCurrent(context));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    NEED(cuMemsetD32Async(memory, 7, 1, working));
    NEED(cuMemcpyDtoHAsync(&value, memory, sizeof value, working));
    NEED(cuStreamSynchronize(working));
    release();
  });
  const CUresult result = cuMemcpyHtoD(memory + 64, source, 4);
  other.join();
  VALUE(value);
  show(text, result);
  NEED(cuCtxSynchronize());
  unsigned copied = 0;
  NEED(cuMemcpyDtoH(&copied, memory + 64, sizeof copied));
  VALUE(copied);
}

}  // namespace

// Work that a driver prepares, and waits for, when it is wanted for the first time.
void warm_up() {
  unsigned value = 0;
  NEED(cuMemsetD32Async(memory, 7, 1, working));
  NEED(cuMemcpyDtoHAsync(&value, memory, sizeof value, working));
  NEED(cuMemcpyHtoD(memory + 64, &value, 4));
  NEED(cuStreamWriteValue32(working, word, 1, 0));
  NEED(cuCtxSynchronize());
}

int main() {
  context = make_context();
  NEED(cuStreamCreate(&working, CU_STREAM_NON_BLOCKING));
  NEED(cuMemAlloc(&word, 4));
  NEED(cuMemAlloc(&memory, 128));
  warm_up();
  void* pinned = nullptr;
  NEED(cuMemHostAlloc(&pinned, 4096, 0));
  alignas(4096) static unsigned registered[1024];
  NEED(cuMemHostRegister(registered, sizeof registered, 0));
  unsigned pageable = 1;
  unsigned* const sources[] = {static_cast<unsigned*>(pinned), registered, &pageable};
  unsigned value = 100;
  for (unsigned* source : sources) {
    std::printf("behind a host function\n");
    *source = ++value;
    released = false;
    NEED(cuLaunchHostFunc(nullptr, wait_for_release, nullptr));
    copy_and_release("cuMemcpyHtoD", source, [] { released = true; });

    std::printf("behind a wait for a value\n");
    *source = ++value;
    NEED(cuMemsetD32(word, 0, 1));
    NEED(cuCtxSynchronize());
    NEED(cuStreamWaitValue32(nullptr, word, 1, CU_STREAM_WAIT_VALUE_GEQ));
    copy_and_release("cuMemcpyHtoD", source,
                     [] { NEED(cuStreamWriteValue32(working, word, 1, 0)); });
  }
  return 0;
}

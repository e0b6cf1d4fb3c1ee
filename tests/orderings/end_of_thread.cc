// Destructors that run at the end of a thread may use the driver: those of thread-local objects,
// made before or after the thread's first call, and those of POSIX keys.
#include <pthread.h>

#include <thread>
#include <vector>

#include "tests/orderings/check.h"

namespace {

CUcontext context;
CUmodule module;
int destructors_run = 0;

// Takes memory of the sizes that a stack of contexts may have had, and tells whether others write
// to it.
class Bait {
 public:
  Bait() {
    for (size_t words = 2; words <= 16; words *= 2) blocks_.emplace_back(words, kPattern);
  }
  bool touched() const {
    for (const auto& block : blocks_) {
      for (const uint64_t word : block) {
        if (word != kPattern) return true;
      }
    }
    return false;
  }

 private:
  static constexpr uint64_t kPattern = 0x5ca1ab1e5ca1ab1e;
  std::vector<std::vector<uint64_t>> blocks_;
};

void use_the_driver() {
  const Bait bait;
  for (int i = 0; i < 5; ++i) CU(cuCtxPushCurrent(context));
  CUcontext current = nullptr;
  CU(cuCtxGetCurrent(&current));
  HOLDS(current == context);
  const CUdeviceptr word = device_memory(sizeof(int));
  // In the thread's own default stream, which may have gone before.
  void* to = reinterpret_cast<void*>(word);
  int value = 3, seen = 0;
  void* parameters[] = {&to, &value};
  CU(cuLaunchKernel(kernel_of(module, "store"), 1, 1, 1, 1, 1, 1, 0, CU_STREAM_PER_THREAD,
                    parameters, nullptr));
  CU(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  CU(cuMemcpyDtoH(&seen, word, sizeof seen));
  HOLDS(seen == 3);
  CU(cuMemFree(word));
  for (int i = 0; i < 5; ++i) CU(cuCtxPopCurrent(&current));
  HOLDS(current == context);
  HOLDS(!bait.touched());
  ++destructors_run;
}

struct AtEnd {
  bool wanted = false;
  ~AtEnd() {
    if (wanted) use_the_driver();
  }
};
thread_local AtEnd made_before, made_after;

}  // namespace

int main() {
  begin();
  context = use_primary();
  module = load_kernels();
  pthread_key_t keys[2];
  for (pthread_key_t& key : keys)
    CU(pthread_key_create(&key, [](void*) { use_the_driver(); }) == 0 ? CUDA_SUCCESS
                                                                      : CUDA_ERROR_UNKNOWN);
  step("threads that use the driver at their end");
  for (int round = 1; round <= 4; ++round) {
    std::thread([&keys] {
      made_before.wanted = true;
      pthread_setspecific(keys[0], &context);
      use_the_driver();
      made_after.wanted = true;
      pthread_setspecific(keys[1], &context);
    }).join();
    HOLDS(destructors_run == 5 * round);
  }
  step("a thread whose first call comes from a destructor");
  std::thread([] { made_before.wanted = true; }).join();
  HOLDS(destructors_run == 21);
  right();
}

// A context that is destroyed takes nothing from the others: copies go on there, in stream order,
// and hold nobody up.
#include <thread>
#include <vector>

#include "tests/orderings/check.h"

namespace {

constexpr int kWords = 1 << 16;

void CUDA_CB sleep_a_while(void*) { usleep(200'000); }

// A copy to pageable memory behind a host function, and one that is under way in the other context.
void copy_behind_host_function(CUcontext context, CUdeviceptr words, int expected) {
  CU(cuCtxSetCurrent(context));
  const CUstream stream = make_stream();
  std::vector<int> seen(kWords, -1);
  CU(cuMemsetD32Async(words, static_cast<unsigned>(expected), kWords, stream));
  CU(cuLaunchHostFunc(stream, sleep_a_while, nullptr));
  step("a copy to pageable memory behind a host function");
  CU(cuMemcpyDtoHAsync(seen.data(), words, kWords * sizeof(int), stream));
  CU(cuStreamSynchronize(stream));
  HOLDS(seen[0] == expected && seen[kWords - 1] == expected);
  CU(cuStreamDestroy(stream));
}

void copy_once(CUdeviceptr words, int value) {
  const std::vector<int> out(kWords, value);
  std::vector<int> in(kWords, -1);
  CU(cuMemcpyHtoD(words, out.data(), kWords * sizeof(int)));
  CU(cuMemcpyDtoH(in.data(), words, kWords * sizeof(int)));
  HOLDS(in == out);
}

}  // namespace

int main() {
  begin();
  const CUcontext primary = use_primary();
  const CUdeviceptr words = device_memory(kWords * sizeof(int));
  copy_once(words, 1);
  for (int round = 0; round < 3; ++round) {
    step("another context is made, used and destroyed");
    const CUcontext other = new_context();
    const CUdeviceptr its_words = device_memory(kWords * sizeof(int));
    copy_once(its_words, 2 + round);
    // Destroyed while a copy of the first context is under way.
    std::thread copier(copy_behind_host_function, primary, words, 10 + round);
    usleep(50'000);
    CU(cuCtxDestroy(other));
    copier.join();
    CU(cuCtxSetCurrent(primary));
    copy_behind_host_function(primary, words, 20 + round);
    copy_once(words, 30 + round);
  }
  right();
}

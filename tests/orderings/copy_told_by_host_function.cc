// A synchronous copy has arrived when it returns, also for work that was submitted before it behind
// a host function which returns afterwards.
#include <atomic>

#include "tests/orderings/late_copy.h"

namespace {

std::atomic<bool> released{false};
void CUDA_CB wait_for_release(void*) {
  while (!released) usleep(500);
}

}  // namespace

int main() {
  prepare();
  const CUstream stream = make_stream();
  int value = 10;
  with_each_memory([&] {
    clear();
    released = false;
    step("a host function with a kernel behind it");
    CU(cuLaunchHostFunc(stream, wait_for_release, nullptr));
    CU(launch(load, stream, seen, target));
    step("a synchronous copy while a host function holds another stream");
    copy_late(++value);
    released = true;
    step("the kernel behind the host function");
    must_be_seen("a kernel behind a host function", value);
  });

  // A large copy, whose end comes last.
  constexpr size_t kLarge = 32u << 20;
  int* const host = static_cast<int*>(aligned_alloc(4096, kLarge));
  std::memset(host, 0, kLarge);
  CU(cuMemHostRegister(host, kLarge, 0));
  const CUdeviceptr large = device_memory(kLarge);
  const size_t last = kLarge / sizeof(int) - 1;
  for (int round = 0; round < 5; ++round) {
    clear();
    released = false;
    host[last] = ++value;
    step("a large synchronous copy while a host function holds another stream");
    CU(cuLaunchHostFunc(stream, wait_for_release, nullptr));
    CU(launch(load, stream, seen, large + last * sizeof(int)));
    CU(cuMemcpyHtoD(large, host, kLarge));
    released = true;
    must_be_seen("a kernel behind a host function, of the end of a large copy", value);
  }
  right();
}

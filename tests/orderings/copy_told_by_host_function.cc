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
  right();
}

// A synchronous copy has arrived when it returns, also for a kernel that already runs and is told
// through host memory.
#include "tests/orderings/late_copy.h"

int main() {
  prepare();
  const CUstream stream = make_stream();
  int* const told = pinned_words();
  const CUdeviceptr told_there = device_pointer(told);
  int value = 30;
  with_each_memory([&] {
    clear();
    *told = 0;
    step("a kernel that waits to be told");
    CU(launch(load_when_told, stream, told_there, seen, target));
    step("a synchronous copy while a kernel in another stream waits to be told");
    copy_late(++value);
    *static_cast<volatile int*>(told) = 1;
    nudge();
    step("the kernel that was told");
    must_be_seen("a running kernel", value);
  });
  right();
}

// A synchronous copy has arrived when it returns, also for work that was submitted before it behind
// a wait for a value which is written afterwards: by the host, or by work in another stream.
#include "tests/orderings/late_copy.h"

int main() {
  prepare();
  const CUstream stream = make_stream(), other = make_stream();
  const CUdeviceptr word = device_memory(64);
  int value = 20;
  with_each_memory([&] {
    clear();
    CU(cuMemsetD32(word, 0, 1));
    CU(cuCtxSynchronize());
    step("a wait for a value in device memory with a kernel behind it");
    CU(cuStreamWaitValue32(stream, word, 1, CU_STREAM_WAIT_VALUE_GEQ));
    CU(launch(load, stream, seen, target));
    step("a synchronous copy while a wait for a value holds another stream");
    copy_late(++value);
    CU(cuStreamWriteValue32(other, word, 1, 0));
    step("the kernel behind the wait for a value");
    must_be_seen("a kernel behind a wait for a value in device memory", value);
  });
  int* const told = pinned_words();
  const CUdeviceptr told_there = device_pointer(told);
  with_each_memory([&] {
    clear();
    *told = 0;
    nudge();
    CU(cuCtxSynchronize());
    step("a wait for a value in host memory with a kernel behind it");
    CU(cuStreamWaitValue32(stream, told_there, 1, CU_STREAM_WAIT_VALUE_GEQ));
    CU(launch(load, stream, seen, target));
    step("a synchronous copy while a wait for a value in host memory holds another stream");
    copy_late(++value);
    *static_cast<volatile int*>(told) = 1;
    nudge();
    step("the kernel behind the wait for a value in host memory");
    must_be_seen("a kernel behind a wait for a value in host memory", value);
  });
  right();
}

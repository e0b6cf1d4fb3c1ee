// A synchronous copy has arrived when it returns, also for copies to the host that stand behind a
// kernel in another stream: the first of them has not come when the synchronous copy returns, so
// the second one brings what that copied.
#include "tests/orderings/late_copy.h"

int main() {
  prepare();
  const CUstream stream = make_stream();
  constexpr size_t kApart = 32;
  int* const came = static_cast<int*>(aligned_alloc(4096, 4096));
  CU(cuMemHostRegister(came, 4096, 0));
  const CUdeviceptr one = device_memory(64);
  CU(cuMemsetD32(one, 1, 1));
  int value = 50;
  with_each_memory([&] {
    clear();
    came[0] = came[kApart] = 0;
    step("copies to the host behind a kernel in another stream");
    CU(launch(spin, stream, kBusy / 2));
    CU(cuMemcpyDtoHAsync(came, one, sizeof *came, stream));
    CU(cuMemcpyDtoHAsync(came + kApart, target, sizeof *came, stream));
    step("a synchronous copy while copies to the host are under way");
    copy_late(++value);
    const bool before = *static_cast<volatile int*>(came) == 0;
    CU(cuCtxSynchronize());
    if (before && came[kApart] != value)
      wrong("%s memory: a later copy brought %d, not %d", memory_name, came[kApart], value);
  });
  right();
}

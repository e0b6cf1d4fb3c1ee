// Launches behind a long kernel wait for it; nothing is lost.
#include <vector>

#include "tests/orderings/check.h"

int main() {
  begin();
  use_primary();
  const CUmodule module = load_kernels();
  const CUfunction spin = kernel_of(module, "spin"), store = kernel_of(module, "store");
  const CUstream stream = make_stream();
  constexpr int kLaunches = 5000;  // more than a driver's queue holds
  const CUdeviceptr words = device_memory(kLaunches * sizeof(int));
  step("launches behind a kernel that runs for 3 s");
  CU(launch(spin, stream, microseconds(3)));
  for (int i = 0; i < kLaunches; ++i) CU(launch(store, stream, words + i * sizeof(int), i));
  std::vector<int> seen(kLaunches, -1);
  CU(cuMemcpyDtoHAsync(seen.data(), words, kLaunches * sizeof(int), stream));
  CU(cuStreamSynchronize(stream));
  for (int i = 0; i < kLaunches; ++i) HOLDS(seen[i] == i);
  right();
}

// Pinned memory is usable in kernels by its host pointer, however much was allocated and freed
// before: 6 TiB altogether, or what 10 s allow.
#include "tests/orderings/check.h"

int main() {
  begin();
  use_primary();
  const CUfunction store = kernel_of(load_kernels(), "store");
  constexpr size_t kLarge = size_t{1} << 30, kSmall = 64 << 10;
  const double end = now_seconds() + 10;
  int rounds = 0;
  for (; rounds < 6000 && now_seconds() < end; ++rounds) {
    step("an allocation of pinned memory");
    void* large = nullptr;
    CU(cuMemHostAlloc(&large, kLarge, 0));
    if (rounds % 500 == 0) {
      step("a kernel that writes to pinned memory");
      int* small = nullptr;
      CU(cuMemHostAlloc(reinterpret_cast<void**>(&small), kSmall, 0));
      CU(launch(store, nullptr, small, rounds));
      CU(cuCtxSynchronize());
      HOLDS(*small == rounds);
      CU(cuMemFreeHost(small));
    }
    CU(cuMemFreeHost(large));
  }
  if (rounds < 6000) note("only %d allocations in the time", rounds);
  right();
}

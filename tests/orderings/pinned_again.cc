// Pinned memory is usable in kernels by its host pointer, however much was allocated and freed
// before: 6 TiB altogether, or what 10 s and the machine's memory allow.
#include "tests/orderings/check.h"

// Over rdma the adapter pins the memory on both sides, and a small machine has not so much.
size_t most_pinned() {
  size_t bytes = size_t{1} << 30;
  for (void* memory = nullptr; bytes > size_t{1} << 26; bytes /= 2) {
    if (cuMemHostAlloc(&memory, bytes, 0) != CUDA_SUCCESS) continue;
    CU(cuMemFreeHost(memory));
    break;
  }
  return bytes;
}

int main() {
  begin();
  use_primary();
  const CUfunction store = kernel_of(load_kernels(), "store");
  constexpr size_t kSmall = 64 << 10;
  const size_t large_bytes = most_pinned();
  const double end = now_seconds() + 10;
  int rounds = 0;
  for (; rounds < 6000 && now_seconds() < end; ++rounds) {
    step("an allocation of pinned memory");
    void* large = nullptr;
    CU(cuMemHostAlloc(&large, large_bytes, 0));
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
  if (rounds < 6000) note("only %d allocations of %zu MiB", rounds, large_bytes >> 20);
  right();
}

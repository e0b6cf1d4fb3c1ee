// A large copy to the device waits in its stream behind a kernel, and the kernel for something that
// the same thread submits later. What does not wait for that stream natively must not wait here.
#include <vector>

#include "tests/orderings/check.h"

namespace {

constexpr size_t kMost = 12 << 20;

void copies(unsigned char* host, CUgraph graph, CUfunction wait, size_t bytes) {
  const CUstream first = make_stream(), second = make_stream();
  const CUdeviceptr words = device_memory(64), device = device_memory(bytes);
  std::vector<unsigned char> seen(bytes);
  for (unsigned char round = 1; round <= 3; ++round) {
    CU(cuMemsetD32(words, 0, 16));
    CU(cuCtxSynchronize());
    std::memset(host, round, bytes);
    step("the kernel, and a copy behind it");
    CU(launch(wait, first, words, words + 8, words + 16));
    CU(cuMemcpyHtoDAsync(device, host, bytes, first));
    HOLDS(cuStreamQuery(first) == CUDA_ERROR_NOT_READY);
    step("a graph that is made executable");
    CUgraphExec exec = nullptr;
    CU(cuGraphInstantiate(&exec, graph, 0));
    step("what lets the kernel go on");
    CU(cuMemsetD32Async(words, 1, 1, second));
    CU(cuStreamSynchronize(first));
    CU(cuMemcpyDtoH(seen.data(), device, bytes));
    for (size_t i = 0; i < bytes; ++i) HOLDS(seen[i] == round);
    CU(cuGraphExecDestroy(exec));
  }
  CU(cuMemFree(device));
  CU(cuMemFree(words));
}

}  // namespace

int main() {
  begin();
  use_primary();
  const CUfunction wait = kernel_of(load_kernels(), "load_when_told");
  void* pinned = nullptr;
  CU(cuMemHostAlloc(&pinned, kMost, 0));
  CUgraph graph = nullptr;
  CU(cuGraphCreate(&graph, 0));
  CUgraphNode node = nullptr;
  CU(cuGraphAddEmptyNode(&node, graph, nullptr, 0));
  for (const size_t bytes : {size_t{1000}, size_t{2} << 20, kMost})
    copies(static_cast<unsigned char*>(pinned), graph, wait, bytes);
  right();
}

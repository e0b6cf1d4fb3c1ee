// A graph that has host nodes alone and a graph of a kernel are launched in turn, many times
// without a wait, while the functions take their time: each function sees what the kernel before it
// has written, and each kernel what the functions have. A driver takes 28 such pairs, however many
// host nodes there are; then the launch waits for a function.
#include <unistd.h>

#include "tests/orderings/check.h"

namespace {

constexpr unsigned kPairs = 60, kFunctions = 2;

struct Seen {
  unsigned* word;  // mapped
  unsigned called = 0, wrong = 0;
};

// Behind `called` functions and a kernel, which multiplies by 3 and adds 1, for each two of them.
void CUDA_CB look(void* given) {
  Seen& seen = *static_cast<Seen*>(given);
  ::usleep(500);
  static unsigned expected = 1;
  if (seen.called != 0 && seen.called % kFunctions == 0) expected = expected * 3 + 1;
  seen.wrong += *seen.word == expected ? 0 : 1;
  *seen.word = ++expected;
  ++seen.called;
}

CUgraphExec graph_of_functions(Seen& seen) {
  const CUDA_HOST_NODE_PARAMS host{look, &seen};
  CUgraph graph;
  CU(cuGraphCreate(&graph, 0));
  CUgraphNode last = nullptr;
  for (unsigned i = 0; i < kFunctions; ++i)
    CU(cuGraphAddHostNode(&last, graph, &last, i == 0 ? 0 : 1, &host));
  return instantiate(graph);
}

CUgraphExec graph_of_a_kernel(CUfunction scale, CUdeviceptr at) {
  unsigned words = 1, factor = 3, one = 1;
  void* values[] = {&at, &at, &words, &factor, &one};
  CUDA_KERNEL_NODE_PARAMS kernel{};
  kernel.func = scale;
  kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = 1;
  kernel.blockDimX = kernel.blockDimY = kernel.blockDimZ = 1;
  kernel.kernelParams = values;
  CUgraph graph;
  CUgraphNode node;
  CU(cuGraphCreate(&graph, 0));
  CU(cuGraphAddKernelNode(&node, graph, nullptr, 0, &kernel));
  return instantiate(graph);
}

}  // namespace

int main() {
  begin();
  use_primary();
  const CUfunction scale = kernel_of(load_kernels(), "scale_words");
  void* mapped = nullptr;
  CU(cuMemHostAlloc(&mapped, sizeof(unsigned), CU_MEMHOSTALLOC_DEVICEMAP));
  Seen seen{static_cast<unsigned*>(mapped)};
  *seen.word = 1;
  CUdeviceptr at;
  CU(cuMemHostGetDevicePointer(&at, mapped, 0));
  const CUgraphExec functions = graph_of_functions(seen), kernel = graph_of_a_kernel(scale, at);
  const CUstream stream = make_stream();
  step("launched in turn");
  for (unsigned i = 0; i < kPairs; ++i) {
    CU(cuGraphLaunch(functions, stream));
    CU(cuGraphLaunch(kernel, stream));
  }
  CU(cuStreamSynchronize(stream));
  HOLDS(seen.called == kPairs * kFunctions);
  HOLDS(seen.wrong == 0);
  CU(cuGraphExecDestroy(functions));
  CU(cuGraphExecDestroy(kernel));
  right();
}

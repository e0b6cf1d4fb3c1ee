// A graph with host nodes and a graph of a kernel are launched in turn, many times without a
// wait, while the functions take their time: each function sees what the kernels before it have
// written, and each kernel what the functions have. Two host nodes are alone, or one is between two
// kernels. A driver takes 28 such pairs, or fewer than 14; then the launch waits for a function.
#include <unistd.h>

#include "tests/orderings/check.h"

namespace {

constexpr unsigned kPairs = 60;

struct Seen {
  unsigned* word;                                    // mapped
  unsigned kernels_before = 0, kernels_between = 1;  // of the first functions, and of further ones
  unsigned functions = 2;                            // of a launch
  unsigned expected = 1, called = 0, wrong = 0;
};

// Each kernel multiplies by 3 and adds 1, each function adds 1.
void CUDA_CB look(void* given) {
  Seen& seen = *static_cast<Seen*>(given);
  ::usleep(500);
  unsigned kernels = seen.called == 0 ? seen.kernels_before : seen.kernels_between;
  if (seen.called % seen.functions != 0) kernels = 0;
  for (; kernels > 0; --kernels) seen.expected = seen.expected * 3 + 1;
  seen.wrong += *seen.word == seen.expected ? 0 : 1;
  *seen.word = ++seen.expected;
  ++seen.called;
}

struct Chain {
  CUfunction scale;
  CUdeviceptr at;
  CUgraph graph = nullptr;
  CUgraphNode last = nullptr;

  void add_kernel() {
    last = ::add_kernel(graph, &last, last == nullptr ? 0 : 1, scale, at, at, 1u, 3u, 1u);
  }
  void add_function(Seen& seen) {
    const CUDA_HOST_NODE_PARAMS host{look, &seen};
    CU(cuGraphAddHostNode(&last, graph, &last, last == nullptr ? 0 : 1, &host));
  }
};

void launch_in_turn(CUfunction scale, CUdeviceptr at, Seen& seen, bool between_kernels) {
  step(between_kernels ? "functions between kernels" : "functions alone");
  seen = {.word = seen.word};
  *seen.word = 1;
  Chain functions{scale, at}, kernel{scale, at};
  CU(cuGraphCreate(&functions.graph, 0));
  CU(cuGraphCreate(&kernel.graph, 0));
  if (between_kernels) {
    seen.kernels_before = 1;
    seen.kernels_between = 3;
    seen.functions = 1;
    functions.add_kernel();
  }
  for (unsigned i = 0; i < seen.functions; ++i) functions.add_function(seen);
  if (between_kernels) functions.add_kernel();
  kernel.add_kernel();
  const CUgraphExec of_functions = instantiate(functions.graph),
                    of_kernel = instantiate(kernel.graph);
  const CUstream stream = make_stream();
  for (unsigned i = 0; i < kPairs; ++i) {
    CU(cuGraphLaunch(of_functions, stream));
    CU(cuGraphLaunch(of_kernel, stream));
  }
  CU(cuStreamSynchronize(stream));
  HOLDS(seen.called == kPairs * seen.functions);
  HOLDS(seen.wrong == 0);
  CU(cuGraphExecDestroy(of_functions));
  CU(cuGraphExecDestroy(of_kernel));
}

}  // namespace

int main() {
  begin();
  use_primary();
  const CUfunction scale = kernel_of(load_kernels(), "scale_words");
  void* mapped = nullptr;
  CU(cuMemHostAlloc(&mapped, sizeof(unsigned), CU_MEMHOSTALLOC_DEVICEMAP));
  CUdeviceptr at;
  CU(cuMemHostGetDevicePointer(&at, mapped, 0));
  Seen seen{static_cast<unsigned*>(mapped)};
  for (const bool between_kernels : {false, true}) launch_in_turn(scale, at, seen, between_kernels);
  right();
}

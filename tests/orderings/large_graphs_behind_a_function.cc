// Graphs with many copies, fills and kernels, launched behind a host function more often than a
// driver's queue takes: each node but a kernel behind a kernel has a place there. The function
// returns, and the launches run in their order, here and in another stream.
#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/orderings/check.h"

namespace {

constexpr unsigned kWords = 64;

void CUDA_CB take_a_while(void*) { std::this_thread::sleep_for(std::chrono::milliseconds(200)); }

// Fills word i % kWords with i, `fills` times; then everything * 3 + 1.
CUgraphExec make_graph(CUcontext context, CUfunction scale, CUdeviceptr at, unsigned fills) {
  CUgraph graph;
  CU(cuGraphCreate(&graph, 0));
  CUgraphNode last = nullptr;
  const auto dependencies = [&] { return last == nullptr ? size_t{0} : size_t{1}; };
  for (unsigned i = 0; i < fills; ++i) {
    const CUDA_MEMSET_NODE_PARAMS fill{.dst = at + i % kWords * sizeof(unsigned),
                                       .pitch = 0,
                                       .value = i,
                                       .elementSize = sizeof(unsigned),
                                       .width = 1,
                                       .height = 1};
    CUgraphNode node;
    CU(cuGraphAddMemsetNode(&node, graph, &last, dependencies(), &fill, context));
    last = node;
  }
  unsigned words = kWords, factor = 3, one = 1;
  void* values[] = {&at, &at, &words, &factor, &one};
  CUDA_KERNEL_NODE_PARAMS kernel{};
  kernel.func = scale;
  kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = kernel.blockDimY = kernel.blockDimZ = 1;
  kernel.blockDimX = kWords;
  kernel.kernelParams = values;
  CUgraphNode node;
  CU(cuGraphAddKernelNode(&node, graph, &last, dependencies(), &kernel));
  CUgraphExec exec;
  CU(cuGraphInstantiate(&exec, graph, 0));
  CU(cuGraphDestroy(graph));
  return exec;
}

}  // namespace

int main() {
  begin();
  use_primary();
  CUcontext context;
  CU(cuCtxGetCurrent(&context));
  const CUfunction scale = kernel_of(load_kernels(), "scale_words");
  CUdeviceptr at, other;
  CU(cuMemAlloc(&at, kWords * sizeof(unsigned)));
  CU(cuMemAlloc(&other, kWords * sizeof(unsigned)));
  const CUstream stream = make_stream(), beside = make_stream();
  // More than a queue takes: in many launches, in a few, in one.
  for (const unsigned fills : {20u, 300u, 1500u}) {
    step("launches behind a function");
    const CUgraphExec exec = make_graph(context, scale, at, fills);
    const unsigned launches = 2500 / fills + 1;
    CU(cuLaunchHostFunc(stream, take_a_while, nullptr));
    for (unsigned i = 0; i < launches; ++i) {
      CU(cuGraphLaunch(exec, stream));
      CU(cuMemsetD32Async(other, i, kWords, beside));
    }
    CU(cuStreamSynchronize(stream));
    CU(cuStreamSynchronize(beside));
    unsigned seen[kWords];
    CU(cuMemcpyDtoH(seen, at, sizeof seen));
    for (unsigned i = 0; i < std::min(fills, kWords); ++i) {
      const unsigned filled = i + (fills - 1 - i) / kWords * kWords;
      if (seen[i] != filled * 3 + 1) wrong("%u fills: word %u is %u", fills, i, seen[i]);
    }
    CU(cuMemcpyDtoH(seen, other, sizeof seen));
    HOLDS(seen[0] == launches - 1 && seen[kWords - 1] == launches - 1);
    CU(cuGraphExecDestroy(exec));
  }
  right();
}

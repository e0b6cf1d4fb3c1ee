// sim: FARGPU_SIM_STREAM_WAITS=1
// Two graphs whose host node is behind kernels that may run at the same time, launched in turn in
// two streams and in the legacy one, with more launches under way than a driver has room for. A
// launch waits until earlier functions have run, which the program does not wait for. Every launch
// runs everything once, in order.
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/orderings/check.h"

namespace {

constexpr unsigned kLaunches = 90;

std::atomic<unsigned> ran{0};

void CUDA_CB take_a_while(void*) { std::this_thread::sleep_for(std::chrono::milliseconds(50)); }
void CUDA_CB count(void*) { ++ran; }

// Each of three words is multiplied by one and gets one more, the third behind the other two.
CUgraphExec make_graph(CUfunction scale, CUdeviceptr at) {
  CUgraph graph;
  CU(cuGraphCreate(&graph, 0));
  CUgraphNode added[3];
  for (unsigned i = 0; i < 3; ++i) {
    const CUdeviceptr word = at + i * sizeof(unsigned);
    added[i] = add_kernel(graph, added, i == 2 ? 2 : 0, scale, word, word, 1u, 1u, 1u);
  }
  const CUDA_HOST_NODE_PARAMS call{count, nullptr};
  CUgraphNode last;
  CU(cuGraphAddHostNode(&last, graph, &added[1], 2, &call));
  CUgraphExec exec;
  CU(cuGraphInstantiate(&exec, graph, 0));
  CU(cuGraphDestroy(graph));
  return exec;
}

}  // namespace

int main() {
  begin();
  use_primary();
  const CUfunction scale = kernel_of(load_kernels(), "scale_words");
  const CUdeviceptr at = device_memory(64);
  const CUstream first = make_stream(), second = make_stream();
  const CUgraphExec graphs[] = {make_graph(scale, at), make_graph(scale, at + 32)};
  CU(cuMemsetD8(at, 0, 64));
  step("launches in turn");
  CU(cuLaunchHostFunc(first, take_a_while, nullptr));
  for (unsigned i = 0; i < kLaunches; ++i) {
    const CUstream stream = i % 7 == 3 ? nullptr : i % 5 == 4 ? second : first;
    CU(cuGraphLaunch(graphs[i % 2], stream));
  }
  CU(cuCtxSynchronize());
  if (ran != kLaunches) wrong("%u of %u functions have run", ran.load(), kLaunches);
  unsigned words[16];
  CU(cuMemcpyDtoH(words, at, sizeof words));
  for (unsigned i = 0; i < 6; ++i) {
    const unsigned word = words[i < 3 ? i : 5 + i];
    if (word != kLaunches / 2) wrong("word %u is %u", i, word);
  }
  for (const CUgraphExec graph : graphs) CU(cuGraphExecDestroy(graph));
  right();
}

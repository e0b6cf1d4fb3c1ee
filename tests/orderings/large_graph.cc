// A graph whose description is larger than what a server takes in one message, and another one of
// the same shape from which it is updated: each node does what it is for.
#include <vector>

#include "tests/orderings/check.h"

namespace {

constexpr unsigned kNodes = 40000;

CUgraph make_graph(CUcontext context, CUdeviceptr words, unsigned first) {
  CUgraph graph;
  CU(cuGraphCreate(&graph, 0));
  CUgraphNode before = nullptr;
  for (unsigned i = 0; i < kNodes; ++i) {
    CUDA_MEMSET_NODE_PARAMS fill{};
    fill.dst = words + i * sizeof(unsigned);
    fill.value = first + i;
    fill.elementSize = sizeof(unsigned);
    fill.width = fill.height = 1;
    CUgraphNode node;
    CU(cuGraphAddMemsetNode(&node, graph, &before, before == nullptr ? 0 : 1, &fill, context));
    before = node;
  }
  return graph;
}

void launch_and_check(CUgraphExec exec, CUstream stream, CUdeviceptr words, unsigned first) {
  std::vector<unsigned> found(kNodes);
  CU(cuGraphLaunch(exec, stream));
  CU(cuStreamSynchronize(stream));
  CU(cuMemcpyDtoH(found.data(), words, kNodes * sizeof(unsigned)));
  for (unsigned i = 0; i < kNodes; ++i) HOLDS(found[i] == first + i);
}

}  // namespace

int main() {
  begin();
  const CUcontext context = use_primary();
  const CUdeviceptr words = device_memory(kNodes * sizeof(unsigned));
  const CUstream stream = make_stream();
  step("instantiated");
  const CUgraph graph = make_graph(context, words, 1);
  CUgraphExec exec;
  CU(cuGraphInstantiate(&exec, graph, 0));
  launch_and_check(exec, stream, words, 1);
  step("updated");
  const CUgraph next = make_graph(context, words, 100000);
  CUgraphExecUpdateResultInfo outcome;
  CU(cuGraphExecUpdate(exec, next, &outcome));
  launch_and_check(exec, stream, words, 100000);
  right();
}

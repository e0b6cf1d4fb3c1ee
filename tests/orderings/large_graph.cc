// A graph whose description is larger than what a server takes in one message, and another one of
// the same shape from which it is updated: each node does what it is for.
#include <vector>

#include "tests/orderings/check.h"

namespace {

constexpr unsigned kNodes = 40000;  // 5 MiB

CUgraph make_graph(CUfunction store, CUdeviceptr words, unsigned first) {
  CUgraph graph;
  CU(cuGraphCreate(&graph, 0));
  CUgraphNode before = nullptr;
  for (unsigned i = 0; i < kNodes; ++i) {
    before = add_kernel(graph, &before, before == nullptr ? 0 : 1, store,
                        words + i * sizeof(unsigned), first + i);
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
  use_primary();
  CUfunction store;
  CU(cuModuleGetFunction(&store, load_kernels(), "store"));
  const CUdeviceptr words = device_memory(kNodes * sizeof(unsigned));
  const CUstream stream = make_stream();
  step("instantiated");
  const CUgraph graph = make_graph(store, words, 1);
  CUgraphExec exec;
  CU(cuGraphInstantiate(&exec, graph, 0));
  launch_and_check(exec, stream, words, 1);
  step("updated");
  const CUgraph next = make_graph(store, words, 100000);
  CUgraphExecUpdateResultInfo outcome;
  CU(cuGraphExecUpdate(exec, next, &outcome));
  launch_and_check(exec, stream, words, 100000);
  right();
}

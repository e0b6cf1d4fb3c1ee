// Graphs with many host nodes between kernels: all run in their order, and what they and the
// kernels do to mapped memory is seen by the next one. Launches lie behind each other without a
// wait, while another thread works in another stream. A queue of a driver takes 56 turns, and a
// host node takes two.
#include <atomic>
#include <thread>

#include "tests/orderings/check.h"

namespace {

constexpr unsigned kWords = 64;

// Its words count up from `value`.
struct Memory {
  unsigned* words;
  unsigned value = 1, called = 0, wrong = 0;
};

// Behind a kernel that multiplies by 3 and adds 1.
void CUDA_CB add(void* given) {
  Memory& memory = *static_cast<Memory*>(given);
  for (unsigned i = 0; i < kWords; ++i) {
    memory.wrong += memory.words[i] == (memory.value + i) * 3 + 1 ? 0 : 1;
    memory.words[i] = memory.value + 5 + i;
  }
  memory.value += 5;
  ++memory.called;
}

CUgraph make_graph(CUfunction scale, CUdeviceptr at, Memory& memory, unsigned host_nodes) {
  unsigned words = kWords, factor = 3, one = 1;
  void* values[] = {&at, &at, &words, &factor, &one};
  CUDA_KERNEL_NODE_PARAMS kernel{};
  kernel.func = scale;
  kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = kernel.blockDimY = kernel.blockDimZ = 1;
  kernel.blockDimX = kWords;
  kernel.kernelParams = values;
  const CUDA_HOST_NODE_PARAMS host{add, &memory};
  CUgraph graph;
  CU(cuGraphCreate(&graph, 0));
  CUgraphNode last = nullptr;
  for (unsigned i = 0; i < host_nodes; ++i) {
    CUgraphNode launch;
    CU(cuGraphAddKernelNode(&launch, graph, &last, i == 0 ? 0 : 1, &kernel));
    CU(cuGraphAddHostNode(&last, graph, &launch, 1, &host));
  }
  return graph;
}

}  // namespace

int main() {
  begin();
  use_primary();
  CUcontext context;
  CU(cuCtxGetCurrent(&context));
  const CUfunction scale = kernel_of(load_kernels(), "scale_words");
  void* mapped = nullptr;
  CU(cuMemHostAlloc(&mapped, kWords * sizeof(unsigned), CU_MEMHOSTALLOC_DEVICEMAP));
  Memory memory{};
  memory.words = static_cast<unsigned*>(mapped);
  for (unsigned i = 0; i < kWords; ++i) memory.words[i] = memory.value + i;
  CUdeviceptr at_mapped;
  CU(cuMemHostGetDevicePointer(&at_mapped, mapped, 0));
  const CUstream stream = make_stream();
  std::atomic<bool> ends{false};
  std::thread beside([&] {
    CU(cuCtxSetCurrent(context));
    const CUstream own = make_stream();
    CUdeviceptr p;
    CU(cuMemAlloc(&p, 4096));
    while (!ends) {
      CU(cuMemsetD32Async(p, 1, 1024, own));
      CU(cuStreamSynchronize(own));
    }
  });
  unsigned calls = 0;
  const auto launch = [&](CUgraphExec exec, unsigned host_nodes) {
    for (int i = 0; i < 4; ++i) CU(cuGraphLaunch(exec, stream));
    calls += 4 * host_nodes;
  };
  const auto wait = [&](unsigned host_nodes) {
    CU(cuStreamSynchronize(stream));
    HOLDS(memory.called == calls);
    if (memory.wrong != 0) wrong("%u host nodes: %u words were others", host_nodes, memory.wrong);
  };
  for (const unsigned host_nodes : {10u, 26u, 27u, 28u, 29u, 40u, 80u}) {
    step("launches of a graph");
    const CUgraphExec exec = instantiate(make_graph(scale, at_mapped, memory, host_nodes));
    launch(exec, host_nodes);
    wait(host_nodes);
    step("launches of it, updated");
    const CUgraph other = make_graph(scale, at_mapped, memory, host_nodes);
    CUgraphExecUpdateResultInfo info{};
    CU(cuGraphExecUpdate(exec, other, &info));
    launch(exec, host_nodes);
    step("launches of two, and their ends");
    CUgraph outer;
    CUgraphNode child;
    CU(cuGraphCreate(&outer, 0));
    CU(cuGraphAddChildGraphNode(&child, outer, nullptr, 0, other));
    CU(cuGraphDestroy(other));
    const CUgraphExec second = instantiate(outer);
    launch(second, host_nodes);
    CU(cuGraphExecDestroy(exec));
    launch(second, host_nodes);
    CU(cuGraphExecDestroy(second));
    wait(host_nodes);
  }
  ends = true;
  beside.join();
  right();
}

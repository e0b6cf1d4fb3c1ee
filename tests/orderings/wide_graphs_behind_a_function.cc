// Graphs whose nodes are side by side, and chains of copies inside the device, have fewer places in
// a driver's queue than nodes. As many launches as natively go on behind a host function that ends
// only afterwards.
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/orderings/check.h"

namespace {

constexpr unsigned kWords = 64;

std::atomic<bool> launched{false};

void CUDA_CB until_launched(void*) {
  while (!launched) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

enum class Kind { kKernels, kFills, kCopies };

// Word i of `to` becomes word i of `from` times 3 plus 1, or i, or word i of `from`. Copies are one
// behind the other, other nodes side by side.
CUgraphExec make_graph(CUcontext context, CUfunction scale, Kind kind, CUdeviceptr to,
                       CUdeviceptr from, unsigned nodes) {
  CUgraph graph;
  CU(cuGraphCreate(&graph, 0));
  CUgraphNode last = nullptr;
  for (unsigned i = 0; i < nodes; ++i) {
    CUdeviceptr out = to + i % kWords * sizeof(unsigned), in = from + i % kWords * sizeof(unsigned);
    if (kind == Kind::kKernels) {
      last = add_kernel(graph, nullptr, 0, scale, out, in, 1u, 3u, 1u);
    } else if (kind == Kind::kFills) {
      const CUDA_MEMSET_NODE_PARAMS fill{.dst = out,
                                         .pitch = 0,
                                         .value = i % kWords,
                                         .elementSize = sizeof(unsigned),
                                         .width = 1,
                                         .height = 1};
      CU(cuGraphAddMemsetNode(&last, graph, nullptr, 0, &fill, context));
    } else {
      CUDA_MEMCPY3D copy{};
      copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
      copy.srcDevice = in;
      copy.dstDevice = out;
      copy.WidthInBytes = sizeof(unsigned);
      copy.Height = copy.Depth = 1;
      CU(cuGraphAddMemcpyNode(&last, graph, &last, last == nullptr ? 0 : 1, &copy, context));
    }
  }
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
  CUdeviceptr from, to;
  CU(cuMemAlloc(&from, kWords * sizeof(unsigned)));
  CU(cuMemAlloc(&to, kWords * sizeof(unsigned)));
  unsigned given[kWords];
  for (unsigned i = 0; i < kWords; ++i) given[i] = 7 * i;
  CU(cuMemcpyHtoD(from, given, sizeof given));
  const CUstream stream = make_stream();
  struct Case {
    Kind kind;
    unsigned nodes, launches;  // an H200 takes 204, 20 and 1020 of them
    unsigned (*is)(unsigned word);
  };
  const Case cases[] = {
      {Kind::kKernels, 40, 150, [](unsigned i) { return i < 40 ? 21 * i + 1 : 0; }},
      {Kind::kFills, 400, 15, [](unsigned i) { return i; }},
      {Kind::kCopies, 400, 50, [](unsigned i) { return 7 * i; }},
  };
  for (const auto& [kind, nodes, launches, is] : cases) {
    step("launches behind a function that waits for them");
    const CUgraphExec exec = make_graph(context, scale, kind, to, from, nodes);
    CU(cuMemsetD32(to, 0, kWords));
    launched = false;
    CU(cuLaunchHostFunc(stream, until_launched, nullptr));
    for (unsigned i = 0; i < launches; ++i) CU(cuGraphLaunch(exec, stream));
    launched = true;
    CU(cuStreamSynchronize(stream));
    unsigned seen[kWords];
    CU(cuMemcpyDtoH(seen, to, sizeof seen));
    for (unsigned i = 0; i < kWords; ++i)
      if (seen[i] != is(i)) wrong("%u nodes: word %u is %u", nodes, i, seen[i]);
    CU(cuGraphExecDestroy(exec));
  }
  right();
}

// Graphs with few and with many host nodes beside fills: launched in a stream of another context,
// while their own context is destroyed, and updated while another context is current, or none. All
// functions run, and the graph is what it was updated to.
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/orderings/check.h"

namespace {

std::atomic<unsigned> called{0};

void CUDA_CB take_a_while(void*) {
  if (called < 10) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ++called;
}

// Word i becomes `value` behind function i.
CUgraph make_graph(CUcontext context, CUdeviceptr at, unsigned host_nodes, unsigned value) {
  const CUDA_HOST_NODE_PARAMS host{take_a_while, nullptr};
  CUgraph graph;
  CU(cuGraphCreate(&graph, 0));
  CUgraphNode last = nullptr;
  for (unsigned i = 0; i < host_nodes; ++i) {
    CUgraphNode function;
    CU(cuGraphAddHostNode(&function, graph, &last, i == 0 ? 0 : 1, &host));
    const CUDA_MEMSET_NODE_PARAMS fill{.dst = at + i * sizeof(unsigned),
                                       .pitch = 0,
                                       .value = value,
                                       .elementSize = sizeof(unsigned),
                                       .width = 1,
                                       .height = 1};
    CU(cuGraphAddMemsetNode(&last, graph, &function, 1, &fill, context));
  }
  return graph;
}

CUcontext make_context() {
  CUdevice device;
  CU(cuDeviceGet(&device, 0));
  CUcontext context;
  CU(cuCtxCreate(&context, nullptr, 0, device));
  return context;
}

void launched_elsewhere(CUcontext context, unsigned host_nodes) {
  step("a context is destroyed while its graph runs in a stream of another one");
  const CUcontext other = make_context();
  CUdeviceptr at;
  CU(cuMemAlloc(&at, host_nodes * sizeof(unsigned)));
  const CUgraph graph = make_graph(other, at, host_nodes, 1);
  CUgraphExec exec;
  CU(cuGraphInstantiate(&exec, graph, 0));
  CU(cuCtxSetCurrent(context));
  const CUstream stream = make_stream();
  called = 0;
  CU(cuGraphLaunch(exec, stream));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CU(cuCtxDestroy(other));
  CU(cuStreamSynchronize(stream));
  if (called != host_nodes) wrong("%u of %u functions have run", called.load(), host_nodes);
  CU(cuStreamDestroy(stream));
}

void updated_elsewhere(CUcontext context, unsigned host_nodes) {
  step("a graph is updated while its context is not current");
  CUdeviceptr at;
  CU(cuMemAlloc(&at, host_nodes * sizeof(unsigned)));
  const CUstream stream = make_stream();
  const CUgraph graph = make_graph(context, at, host_nodes, 1);
  CUgraphExec exec;
  CU(cuGraphInstantiate(&exec, graph, 0));
  CU(cuGraphDestroy(graph));
  const CUcontext other = make_context();
  unsigned value = 1;
  for (const CUcontext current : {other, CUcontext{nullptr}, context}) {
    const CUgraph next = make_graph(context, at, host_nodes, ++value);
    CU(cuCtxSetCurrent(current));
    CUgraphExecUpdateResultInfo info{};
    CU(cuGraphExecUpdate(exec, next, &info));
    CU(cuCtxSetCurrent(context));
    called = 10;
    CU(cuGraphLaunch(exec, stream));
    CU(cuStreamSynchronize(stream));
    if (called != 10 + host_nodes) wrong("%u functions have run", called.load() - 10);
    for (unsigned i = 0; i < host_nodes; ++i) {
      unsigned seen = 0;
      CU(cuMemcpyDtoH(&seen, at + i * sizeof seen, sizeof seen));
      if (seen != value) wrong("word %u is %u, not %u", i, seen, value);
    }
    CU(cuGraphDestroy(next));
  }
  CU(cuCtxDestroy(other));
}

}  // namespace

int main() {
  begin();
  use_primary();
  CUcontext context;
  CU(cuCtxGetCurrent(&context));
  for (const unsigned host_nodes : {5u, 40u}) {
    launched_elsewhere(context, host_nodes);
    updated_elsewhere(context, host_nodes);
  }
  right();
}

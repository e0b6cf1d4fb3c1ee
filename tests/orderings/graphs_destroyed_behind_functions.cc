// sim: FARGPU_SIM_STREAM_WAITS=1
// A driver may wait for host functions when an executable graph ends of which a launch is under
// way. Such graphs are destroyed, and made again, by one thread while another one always has
// functions in a stream. All work is done in its order.
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/orderings/check.h"

namespace {

std::atomic<unsigned> ran{0};

void CUDA_CB pause_2_ms(void*) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }
void CUDA_CB take_a_while(void*) {
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  ++ran;
}

CUcontext context;

CUDA_MEMSET_NODE_PARAMS fill_of(CUdeviceptr at, unsigned value) {
  return {.dst = at, .pitch = 0, .value = value, .elementSize = 4, .width = 1, .height = 1};
}

// A function, then `at` becomes `value`. with_memory: in between in memory of the graph.
CUgraph make_graph(CUdeviceptr at, unsigned value, bool with_memory) {
  CUgraph graph;
  CU(cuGraphCreate(&graph, 0));
  CUgraphNode host, allocated, filled, copied, freed;
  const CUDA_HOST_NODE_PARAMS call{take_a_while, nullptr};
  CU(cuGraphAddHostNode(&host, graph, nullptr, 0, &call));
  if (!with_memory) {
    const auto fill = fill_of(at, value);
    CU(cuGraphAddMemsetNode(&filled, graph, &host, 1, &fill, context));
    return graph;
  }
  CUDA_MEM_ALLOC_NODE_PARAMS memory{};
  memory.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  memory.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  memory.bytesize = 4096;
  CU(cuGraphAddMemAllocNode(&allocated, graph, &host, 1, &memory));
  const auto fill = fill_of(memory.dptr, value);
  CU(cuGraphAddMemsetNode(&filled, graph, &allocated, 1, &fill, context));
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = memory.dptr;
  copy.dstDevice = at;
  copy.WidthInBytes = 4;
  copy.Height = copy.Depth = 1;
  CU(cuGraphAddMemcpyNode(&copied, graph, &filled, 1, &copy, context));
  CU(cuGraphAddMemFreeNode(&freed, graph, &copied, 1, memory.dptr));
  return graph;
}

unsigned value_at(CUdeviceptr at) {
  unsigned value = 0;
  CU(cuMemcpyDtoH(&value, at, sizeof value));
  return value;
}

}  // namespace

int main() {
  begin();
  context = use_primary();
  const CUdeviceptr at = device_memory(64);
  const CUstream stream = make_stream(), beside = make_stream();
  CU(cuMemsetD32(at, 0, 16));
  CU(cuCtxSynchronize());

  step("the end of a graph behind a function of its stream");
  for (unsigned round = 1; round <= 3; ++round) {
    const CUgraph graph = make_graph(at, round, false);
    CUgraphExec exec;
    CU(cuGraphInstantiate(&exec, graph, 0));
    CU(cuLaunchHostFunc(stream, take_a_while, nullptr));
    CU(cuGraphLaunch(exec, stream));
    CU(cuGraphExecDestroy(exec));
    CU(cuGraphDestroy(graph));
    CU(cuMemsetD32Async(at + 4, round, 1, beside));
    CU(cuStreamSynchronize(beside));
    CU(cuStreamSynchronize(stream));
    HOLDS(ran.exchange(0) == 2);
    HOLDS(value_at(at) == round && value_at(at + 4) == round);
  }

  step("the end of a graph behind a value that another thread writes");
  {
    const CUgraph graph = make_graph(at, 5, false);
    CUgraphExec exec;
    CU(cuGraphInstantiate(&exec, graph, 0));
    CU(cuMemsetD32(at + 8, 0, 1));
    CU(cuCtxSynchronize());
    CU(cuStreamWaitValue32(stream, at + 8, 1, CU_STREAM_WAIT_VALUE_GEQ));
    CU(cuGraphLaunch(exec, stream));
    std::thread writer([&] {
      CU(cuCtxSetCurrent(context));
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      CU(cuStreamWriteValue32(beside, at + 8, 1, 0));
    });
    CU(cuGraphExecDestroy(exec));
    CU(cuGraphDestroy(graph));
    writer.join();
    CU(cuStreamSynchronize(stream));
    HOLDS(ran.exchange(0) == 1);
    HOLDS(value_at(at) == 5);
  }

  std::atomic<bool> stop{false};
  std::atomic<unsigned> queued{0};
  std::thread feeder([&] {
    CU(cuCtxSetCurrent(context));
    const CUstream own = make_stream();
    const CUevent done[2] = {make_event(), make_event()};
    for (unsigned i = 0; !stop; ++i) {
      if (i >= 2) CU(cuEventSynchronize(done[i % 2]));
      CU(cuLaunchHostFunc(own, pause_2_ms, nullptr));
      CU(cuEventRecord(done[i % 2], own));
      queued = i + 1;
    }
    CU(cuStreamSynchronize(own));
  });
  while (queued < 4) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  for (const bool with_memory : {false, true}) {
    step(with_memory ? "graphs with memory, made again" : "graphs, made again");
    const CUgraph graph = make_graph(at, 7, with_memory);
    for (unsigned round = 0; round < 5; ++round) {
      CUgraphExec exec;
      CU(cuMemsetD32Async(at, 0, 1, stream));
      CU(cuGraphInstantiate(&exec, graph, 0));
      CU(cuGraphLaunch(exec, stream));
      CU(cuGraphExecDestroy(exec));
    }
    CU(cuStreamSynchronize(stream));
    HOLDS(ran.exchange(0) == 5);
    HOLDS(value_at(at) == 7);
    CU(cuGraphDestroy(graph));
  }
  step("an update from a graph whose executable graph has ended");
  const CUgraph first = make_graph(at, 8, true), second = make_graph(at, 9, true);
  CUgraphExec gone, exec;
  CU(cuGraphInstantiate(&gone, first, 0));
  CU(cuGraphLaunch(gone, stream));
  CU(cuGraphExecDestroy(gone));
  CU(cuGraphInstantiate(&exec, first, 0));
  CUgraphExecUpdateResultInfo info{};
  CU(cuGraphExecUpdate(exec, first, &info));
  CU(cuMemsetD32Async(at, 0, 1, stream));
  CU(cuGraphLaunch(exec, stream));
  // Memory of another graph is not taken.
  HOLDS(cuGraphExecUpdate(exec, second, &info) == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  CU(cuGraphExecDestroy(exec));
  CU(cuStreamSynchronize(stream));
  HOLDS(ran.exchange(0) == 2);
  HOLDS(value_at(at) == 8);
  stop = true;
  feeder.join();
  right();
}

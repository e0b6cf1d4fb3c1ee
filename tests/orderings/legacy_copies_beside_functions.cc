// sim: FARGPU_SIM_STREAM_WAITS=1
// A thread fills the legacy stream and copies behind that, so that the copy has to wait for room.
// Meanwhile another puts functions and copies into a blocking stream. Every function takes memory
// of the driver's while work of the legacy stream has not ended: the copy must count before it is
// sent, also where the function is the first of the process. Then graphs of host nodes, which wait
// for room themselves while such work comes, and children of them.
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/orderings/check.h"

namespace {

constexpr unsigned kFull = 960, kPairs = 60;
constexpr size_t kBytes = 64;

std::atomic<unsigned> ran{0};

void CUDA_CB take_long(void*) {
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  ++ran;
}
void CUDA_CB count(void*) { ++ran; }

void pause(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

struct World {
  CUcontext context = nullptr;
  CUfunction spin = nullptr;
  CUstream blocking = nullptr;
  CUdeviceptr at = 0, filled = 0;
  void* pinned = nullptr;
};

// A kernel of `microseconds` and fills behind it, as many as a queue takes.
void fill(const World& world, CUstream stream, unsigned microseconds) {
  CU(launch(world.spin, stream, microseconds));
  for (unsigned i = 1; i < kFull; ++i) CU(cuMemsetD8Async(world.filled, 1, kBytes, stream));
}

void await_functions(const World& world, unsigned expected) {
  CU(cuStreamSynchronize(world.blocking));
  if (ran.exchange(0) != expected) wrong("not all of %u functions have run", expected);
}

void copy_without_room(const World& world) {
  std::thread copier([&] {
    CU(cuCtxSetCurrent(world.context));
    fill(world, nullptr, 100'000);
    char bytes[kBytes];
    CU(cuMemcpyDtoH(bytes, world.filled, kBytes));
  });
  pause(40);
  CU(cuLaunchHostFunc(world.blocking, take_long, nullptr));
  pause(150);
  for (unsigned i = 0; i < kPairs; ++i) {
    CU(cuLaunchHostFunc(world.blocking, count, nullptr));
    CU(cuMemcpyHtoDAsync(world.at, world.pinned, kBytes, world.blocking));
  }
  await_functions(world, 1 + kPairs);
  copier.join();
}

CUgraph graph_of(unsigned host_nodes) {
  CUgraph graph;
  CU(cuGraphCreate(&graph, 0));
  CUgraphNode last = nullptr;
  const CUDA_HOST_NODE_PARAMS params{count, nullptr};
  for (unsigned i = 0; i < host_nodes; ++i) {
    CUgraphNode node;
    CU(cuGraphAddHostNode(&node, graph, &last, last == nullptr ? 0 : 1, &params));
    last = node;
  }
  return graph;
}

void graph_without_room(const World& world) {
  constexpr unsigned kNodes = 30;
  const CUgraphExec exec = instantiate(graph_of(kNodes));
  std::thread beside([&] {
    CU(cuCtxSetCurrent(world.context));
    pause(60);
    CU(launch(world.spin, nullptr, 400'000u));
  });
  fill(world, world.blocking, 200'000);
  CU(cuGraphLaunch(exec, world.blocking));
  for (unsigned i = 0; i < kPairs; ++i) CU(cuLaunchHostFunc(world.blocking, count, nullptr));
  await_functions(world, kNodes + kPairs);
  beside.join();
  CU(cuGraphExecDestroy(exec));
}

void children_beside_a_kernel(const World& world, unsigned nodes, unsigned launches) {
  CUgraph parent;
  CUgraphNode child;
  CU(cuGraphCreate(&parent, 0));
  CU(cuGraphAddChildGraphNode(&child, parent, nullptr, 0, graph_of(nodes)));
  const CUgraphExec exec = instantiate(parent);
  CU(cuCtxSynchronize());
  CU(launch(world.spin, nullptr, 300'000u));
  for (unsigned i = 0; i < launches; ++i) CU(cuGraphLaunch(exec, world.blocking));
  for (unsigned i = 0; i < kPairs; ++i) CU(cuLaunchHostFunc(world.blocking, count, nullptr));
  await_functions(world, launches * nodes + kPairs);
  CU(cuGraphExecDestroy(exec));
}

}  // namespace

int main() {
  begin();
  use_primary();
  World world;
  CU(cuCtxGetCurrent(&world.context));
  world.spin = kernel_of(load_kernels(), "spin");
  CU(cuStreamCreate(&world.blocking, CU_STREAM_DEFAULT));
  CU(cuMemAllocHost(&world.pinned, kBytes));
  world.at = device_memory(kBytes);
  world.filled = device_memory(kBytes);
  CU(cuCtxSynchronize());
  step("the first function beside a copy without room");
  copy_without_room(world);
  step("functions beside a copy without room");
  copy_without_room(world);
  step("a graph of host nodes without room");
  graph_without_room(world);
  step("children of host nodes beside a kernel");
  children_beside_a_kernel(world, 30, 4);
  children_beside_a_kernel(world, 4, 5);
  right();
}

// sim: FARGPU_SIM_STREAM_WAITS=1
// The context in which a graph was instantiated is destroyed while a launch of the graph, in a
// stream of another context, is behind a function that waits for another thread. Everything ends
// when the function has, whether the program has destroyed the executable graph before or not.
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/orderings/check.h"

namespace {

std::atomic<bool> told{false};

void CUDA_CB until_told(void*) {
  while (!told) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}
void CUDA_CB nothing(void*) {}

void try_it(CUdevice device, bool destroy) {
  CUcontext of_graph, of_stream;
  CU(cuCtxCreate(&of_stream, nullptr, 0, device));
  const CUstream stream = make_stream();
  CU(cuCtxCreate(&of_graph, nullptr, 0, device));
  CUgraph graph;
  CUgraphNode node;
  const CUDA_HOST_NODE_PARAMS call{nothing, nullptr};
  CU(cuGraphCreate(&graph, 0));
  CU(cuGraphAddHostNode(&node, graph, nullptr, 0, &call));
  CUgraphExec exec;
  CU(cuGraphInstantiate(&exec, graph, 0));
  CU(cuCtxSetCurrent(of_stream));
  told = false;
  CU(cuLaunchHostFunc(stream, until_told, nullptr));
  CU(cuGraphLaunch(exec, stream));
  std::thread later([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    told = true;
  });
  step("the end of the executable graph");  // a driver may wait there for the launch
  if (destroy) CU(cuGraphExecDestroy(exec));
  step("the end of the graph's context");
  CU(cuCtxDestroy(of_graph));
  step("a stream behind the launch");
  CU(cuStreamSynchronize(stream));
  later.join();
  CU(cuGraphDestroy(graph));
  CU(cuStreamDestroy(stream));
  CU(cuCtxDestroy(of_stream));
}

}  // namespace

int main() {
  begin();
  CU(cuInit(0));
  CUdevice device;
  CU(cuDeviceGet(&device, 0));
  try_it(device, true);
  try_it(device, false);
  right();
}

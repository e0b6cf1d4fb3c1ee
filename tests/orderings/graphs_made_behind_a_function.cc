// A graph is made, launched, updated and launched again while a host function waits for just that.
// Natively none of these calls waits for the function.
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/orderings/check.h"

namespace {

std::atomic<bool> made{false}, in_vain{false};

void CUDA_CB wait_until_made(void*) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!made && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (!made) in_vain = true;
}

CUgraph make_graph(CUfunction scale, CUcontext context, CUdeviceptr at, unsigned value) {
  CUgraph graph;
  CU(cuGraphCreate(&graph, 0));
  CUgraphNode fill;
  const CUDA_MEMSET_NODE_PARAMS params{
      .dst = at, .pitch = 0, .value = value, .elementSize = 4, .width = 1, .height = 1};
  CU(cuGraphAddMemsetNode(&fill, graph, nullptr, 0, &params, context));
  add_kernel(graph, &fill, 1, scale, at, at, 1u, 3u, 1u);
  return graph;
}

}  // namespace

int main() {
  begin();
  const CUcontext context = use_primary();
  const CUfunction scale = kernel_of(load_kernels(), "scale_words");
  const CUdeviceptr at = device_memory(4);
  const CUstream held = make_stream(), stream = make_stream();
  // The kernel is loaded before the function begins.
  CUdeviceptr of_kernel = at;
  unsigned words = 1, factor = 1, one = 0;
  void* values[] = {&of_kernel, &of_kernel, &words, &factor, &one};
  CU(cuLaunchKernel(scale, 1, 1, 1, 1, 1, 1, 0, stream, values, nullptr));
  CU(cuStreamSynchronize(stream));
  const CUgraph first = make_graph(scale, context, at, 1),
                second = make_graph(scale, context, at, 2);
  unsigned seen = 0;
  const auto word = [&] {
    CU(cuMemcpyDtoHAsync(&seen, at, sizeof seen, stream));
    CU(cuStreamSynchronize(stream));
    return seen;
  };

  step("a graph is made behind a function");
  CU(cuLaunchHostFunc(held, wait_until_made, nullptr));
  CUgraphExec exec;
  CU(cuGraphInstantiate(&exec, first, 0));
  CU(cuGraphLaunch(exec, stream));
  HOLDS(word() == 4);
  step("and updated");
  CUgraphExecUpdateResultInfo info{};
  CU(cuGraphExecUpdate(exec, second, &info));
  CU(cuGraphLaunch(exec, stream));
  HOLDS(word() == 7);
  made = true;
  CU(cuStreamSynchronize(held));
  HOLDS(!in_vain);
  CU(cuGraphExecDestroy(exec));
  right();
}

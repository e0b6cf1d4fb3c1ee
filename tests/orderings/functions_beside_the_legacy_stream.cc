// sim: FARGPU_SIM_STREAM_WAITS=1
// Host functions, graphs of host nodes, and graphs with host nodes and kernels, many behind each
// other in a blocking stream whose first function takes a while, with work of the legacy stream in
// between. A driver sets memory aside for such functions. All of them run, and all work is done.
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/orderings/check.h"

namespace {

constexpr unsigned kRounds = 70;

std::atomic<unsigned> ran{0};

void CUDA_CB take_a_while(void*) { std::this_thread::sleep_for(std::chrono::milliseconds(100)); }
void CUDA_CB count(void*) { ++ran; }

std::atomic<bool> told{false};

void CUDA_CB until_told(void*) {
  while (!told) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

CUgraphExec make_graph(CUfunction scale, CUdeviceptr at, unsigned host_nodes, bool with_kernels) {
  CUgraph graph;
  CU(cuGraphCreate(&graph, 0));
  CUgraphNode last = nullptr;
  const auto add_scale = [&] {
    last = add_kernel(graph, &last, last == nullptr ? 0 : 1, scale, at, at, 1u, 1u, 1u);
  };
  if (with_kernels) add_scale();
  for (unsigned i = 0; i < host_nodes; ++i) {
    const CUDA_HOST_NODE_PARAMS call{count, nullptr};
    CUgraphNode node;
    CU(cuGraphAddHostNode(&node, graph, &last, last == nullptr ? 0 : 1, &call));
    last = node;
    if (with_kernels) add_scale();
  }
  CUgraphExec exec;
  CU(cuGraphInstantiate(&exec, graph, 0));
  CU(cuGraphDestroy(graph));
  return exec;
}

unsigned word_at(CUdeviceptr at) {
  unsigned value = 0;
  CU(cuMemcpyDtoH(&value, at, sizeof value));
  return value;
}

}  // namespace

int main() {
  begin();
  use_primary();
  const CUmodule kernels = load_kernels();
  const CUfunction scale = kernel_of(kernels, "scale_words"), spin = kernel_of(kernels, "spin");
  const CUdeviceptr at = device_memory(64);
  const CUstream apart = make_stream();
  CUstream blocking;
  CU(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  const CUevent event = make_event();
  const CUgraphExec two = make_graph(scale, at, 2, false), mixed = make_graph(scale, at, 1, true),
                    other = make_graph(scale, at, 1, true);
  const auto run = [&](const char* what, unsigned expected, auto&& round) {
    step(what);
    CU(cuMemsetD32(at, 0, 2));
    ran = 0;
    CU(cuLaunchHostFunc(blocking, take_a_while, nullptr));
    for (unsigned i = 1; i <= kRounds; ++i) {
      round();
      CU(cuMemsetD32Async(at + 4, i, 1, nullptr));
    }
    CU(cuStreamSynchronize(nullptr));
    CU(cuStreamSynchronize(apart));
    if (ran != expected) wrong("%s: %u of %u functions have run", what, ran.load(), expected);
    if (word_at(at + 4) != kRounds) wrong("%s: the word is %u", what, word_at(at + 4));
  };
  run("functions", kRounds, [&] { CU(cuLaunchHostFunc(blocking, count, nullptr)); });
  run("several functions", 5 * kRounds, [&] {
    for (int i = 0; i < 5; ++i) CU(cuLaunchHostFunc(blocking, count, nullptr));
  });
  run("functions with work behind each", kRounds, [&] {
    CU(cuLaunchHostFunc(blocking, count, nullptr));
    CU(cuMemsetD32Async(at + 8, 1, 1, blocking));
  });
  run("graphs of host nodes", 2 * kRounds, [&] { CU(cuGraphLaunch(two, blocking)); });
  run("several graphs of host nodes", 6 * kRounds, [&] {
    for (int i = 0; i < 3; ++i) CU(cuGraphLaunch(two, blocking));
  });
  run("graphs with kernels", kRounds, [&] {
    CU(cuGraphLaunch(mixed, blocking));
    CU(cuEventRecord(event, nullptr));
  });
  run("graphs with kernels behind functions", 2 * kRounds, [&] {
    CU(cuLaunchHostFunc(blocking, count, nullptr));
    CU(cuGraphLaunch(mixed, blocking));
  });
  run("in a stream that is apart, too", 3 * kRounds, [&] {
    CU(cuLaunchHostFunc(apart, count, nullptr));
    CU(cuGraphLaunch(mixed, apart));
    CU(cuLaunchHostFunc(blocking, count, nullptr));
  });
  run("two graphs in turn", 2 * kRounds, [&] {
    CU(cuGraphLaunch(mixed, blocking));
    CU(cuGraphLaunch(other, blocking));
  });
  run("in the legacy stream", 2 * kRounds, [&] {
    CU(cuLaunchHostFunc(nullptr, count, nullptr));
    CU(cuGraphLaunch(mixed, blocking));
  });
  step("functions beside a kernel of the legacy stream");
  ran = 0;
  unsigned microseconds = 200'000;
  void* values[] = {&microseconds};
  CU(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, nullptr, values, nullptr));
  for (unsigned i = 0; i < kRounds; ++i) CU(cuLaunchHostFunc(blocking, count, nullptr));
  CU(cuStreamSynchronize(blocking));
  if (ran != kRounds) wrong("%u of %u functions have run", ran.load(), kRounds);
  step("functions behind work of the legacy stream that has ended");
  ran = 0;
  CU(cuMemsetD32Async(at, 0, 1, nullptr));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CU(cuLaunchHostFunc(blocking, until_told, nullptr));
  for (unsigned i = 0; i < kRounds; ++i) CU(cuLaunchHostFunc(blocking, count, nullptr));
  told = true;
  CU(cuStreamSynchronize(blocking));
  if (ran != kRounds) wrong("%u of %u functions have run", ran.load(), kRounds);
  CU(cuGraphExecDestroy(two));
  CU(cuGraphExecDestroy(mixed));
  CU(cuGraphExecDestroy(other));
  right();
}

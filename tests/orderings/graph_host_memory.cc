// Copies in a graph read host memory when they run, at each launch: also what a host node of the
// same graph, or the end of an earlier launch, has written; and what they write is there for the
// host nodes behind them. That is so for pinned and registered memory. When a driver reads or
// writes ordinary memory beside host nodes is its own affair; what is there before the first
// launch, and after the last one, is not.
#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "tests/orderings/check.h"

namespace {

constexpr unsigned kWords = 5000;
constexpr int kLaunches = 20;

struct Turn {
  unsigned* source;
  unsigned* result;
  bool ordinary = false;
  unsigned launches = 0;
  unsigned wrong = 0;
};

// Ahead of the copies: the source is another one for each launch.
void CUDA_CB prepare(void* pointer) {
  Turn& turn = *static_cast<Turn*>(pointer);
  ++turn.launches;
  if (turn.ordinary) return;
  for (unsigned i = 0; i < kWords; ++i) turn.source[i] = turn.launches * 100000 + i;
}

// Behind them.
void CUDA_CB compare(void* pointer) {
  Turn& turn = *static_cast<Turn*>(pointer);
  if (turn.ordinary) return;
  for (unsigned i = 0; i < kWords; ++i)
    turn.wrong += turn.result[i] == turn.launches * 100000 + i ? 0 : 1;
}

CUDA_MEMCPY3D copy_of(CUdeviceptr device, unsigned* host, bool to_device) {
  CUDA_MEMCPY3D copy{};
  (to_device ? copy.dstMemoryType : copy.srcMemoryType) = CU_MEMORYTYPE_DEVICE;
  (to_device ? copy.srcMemoryType : copy.dstMemoryType) = CU_MEMORYTYPE_HOST;
  (to_device ? copy.dstDevice : copy.srcDevice) = device;
  if (to_device)
    copy.srcHost = host;
  else
    copy.dstHost = host;
  copy.WidthInBytes = kWords * sizeof(unsigned);
  copy.Height = copy.Depth = 1;
  return copy;
}

void check(const char* name, unsigned* source, unsigned* result, CUcontext context,
           CUfunction copy_words, bool ordinary = false) {
  step(name);
  Turn turn{source, result, ordinary};
  for (unsigned i = 0; i < kWords; ++i) source[i] = kLaunches * 100000 + i;
  CUdeviceptr a = device_memory(kWords * sizeof(unsigned));
  CUdeviceptr b = device_memory(kWords * sizeof(unsigned));
  unsigned words = kWords;
  CUgraph graph;
  CU(cuGraphCreate(&graph, 0));
  CUgraphNode nodes[5];
  const CUDA_HOST_NODE_PARAMS first{prepare, &turn}, last{compare, &turn};
  CU(cuGraphAddHostNode(&nodes[0], graph, nullptr, 0, &first));
  const CUDA_MEMCPY3D in = copy_of(a, source, true), out = copy_of(b, result, false);
  CU(cuGraphAddMemcpyNode(&nodes[1], graph, &nodes[0], 1, &in, context));
  void* arguments[] = {&b, &a, &words};
  CUDA_KERNEL_NODE_PARAMS kernel{};
  kernel.func = copy_words;
  kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = 1;
  kernel.blockDimX = 64;
  kernel.blockDimY = kernel.blockDimZ = 1;
  kernel.kernelParams = arguments;
  CU(cuGraphAddKernelNode(&nodes[2], graph, &nodes[1], 1, &kernel));
  CU(cuGraphAddMemcpyNode(&nodes[3], graph, &nodes[2], 1, &out, context));
  CU(cuGraphAddHostNode(&nodes[4], graph, &nodes[3], 1, &last));
  CUgraphExec exec;
  CU(cuGraphInstantiate(&exec, graph, 0));
  CU(cuGraphDestroy(graph));
  const CUstream stream = make_stream();
  for (int i = 0; i < kLaunches; ++i) CU(cuGraphLaunch(exec, stream));
  // What is under way goes on.
  CU(cuGraphExecDestroy(exec));
  CU(cuStreamSynchronize(stream));
  HOLDS(turn.launches == kLaunches);
  if (turn.wrong != 0) wrong("%s memory: %u words of a launch were others", name, turn.wrong);
  for (unsigned i = 0; i < kWords; ++i) HOLDS(result[i] == kLaunches * 100000 + i);
  CU(cuStreamDestroy(stream));
  CU(cuMemFree(a));
  CU(cuMemFree(b));
}

// A graph with one copy to the host, which is disabled, changed and enabled again.
void changes(CUcontext context) {
  step("a copy that is disabled and changed");
  // Pinned: a driver's launch waits for copies to ordinary memory.
  void *first_memory, *second_memory;
  CU(cuMemHostAlloc(&first_memory, kWords * sizeof(unsigned), 0));
  CU(cuMemHostAlloc(&second_memory, kWords * sizeof(unsigned), 0));
  const std::span first(static_cast<unsigned*>(first_memory), kWords);
  const std::span second(static_cast<unsigned*>(second_memory), kWords);
  std::fill(first.begin(), first.end(), 7);
  std::fill(second.begin(), second.end(), 7);
  const CUdeviceptr memory = device_memory(kWords * sizeof(unsigned));
  CU(cuMemsetD32(memory, 3, kWords));
  CU(cuCtxSynchronize());
  CUgraph graph;
  CU(cuGraphCreate(&graph, 0));
  CUgraphNode node;
  const CUDA_MEMCPY3D to_first = copy_of(memory, first.data(), false);
  const CUDA_MEMCPY3D to_second = copy_of(memory, second.data(), false);
  CU(cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &to_first, context));
  CUgraphExec exec;
  CU(cuGraphInstantiate(&exec, graph, 0));
  const CUstream stream = make_stream();
  CU(cuGraphNodeSetEnabled(exec, node, 0));
  CU(cuGraphExecMemcpyNodeSetParams(exec, node, &to_second, context));
  CU(cuGraphLaunch(exec, stream));
  CU(cuStreamSynchronize(stream));
  HOLDS(first[0] == 7 && second[0] == 7);
  // It is the node of the first graph that stays disabled, whatever graph it is updated from.
  CUgraph other_graph;
  CUgraphNode other_node;
  CU(cuGraphCreate(&other_graph, 0));
  CU(cuGraphAddMemcpyNode(&other_node, other_graph, nullptr, 0, &to_second, context));
  CUgraphExecUpdateResultInfo outcome;
  CU(cuGraphExecUpdate(exec, other_graph, &outcome));
  CU(cuGraphDestroy(other_graph));
  unsigned enabled = 1;
  CU(cuGraphNodeGetEnabled(exec, node, &enabled));
  CU(cuGraphLaunch(exec, stream));
  CU(cuStreamSynchronize(stream));
  HOLDS(enabled == 0 && first[0] == 7 && second[0] == 7);
  CU(cuGraphNodeSetEnabled(exec, node, 1));

  // Nobody waits for the stream when the graph is changed, however often.
  const CUdeviceptr word = device_memory(sizeof(unsigned));
  CU(cuMemsetD32(word, 0, 1));
  CU(cuCtxSynchronize());
  CU(cuStreamWaitValue32(stream, word, 1, CU_STREAM_WAIT_VALUE_EQ));
  CU(cuGraphLaunch(exec, stream));
  for (int i = 0; i < 300; ++i)
    CU(cuGraphExecMemcpyNodeSetParams(exec, node, i % 2 == 0 ? &to_first : &to_second, context));
  const CUstream other = make_stream();
  CU(cuStreamWriteValue32(other, word, 1, 0));
  CU(cuStreamSynchronize(stream));
  HOLDS(first[0] == 7 && second[kWords - 1] == 3);
  CU(cuGraphExecDestroy(exec));
  CU(cuGraphDestroy(graph));
}

}  // namespace

int main() {
  begin();
  const CUcontext context = use_primary();
  CUfunction copy_words;
  CU(cuModuleGetFunction(&copy_words, load_kernels(), "copy_words"));

  std::vector<unsigned> source(kWords), result(kWords);
  check("ordinary", source.data(), result.data(), context, copy_words, true);

  void *pinned_source, *pinned_result;
  CU(cuMemHostAlloc(&pinned_source, kWords * sizeof(unsigned), 0));
  CU(cuMemHostAlloc(&pinned_result, kWords * sizeof(unsigned), 0));
  check("pinned", static_cast<unsigned*>(pinned_source), static_cast<unsigned*>(pinned_result),
        context, copy_words);
  check("ordinary to pinned", source.data(), static_cast<unsigned*>(pinned_result), context,
        copy_words, true);

  std::vector<unsigned> registered(2 * kWords);
  CU(cuMemHostRegister(registered.data(), registered.size() * sizeof(unsigned), 0));
  check("registered", registered.data(), registered.data() + kWords, context, copy_words);
  changes(context);
  right();
}

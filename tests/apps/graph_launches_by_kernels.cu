// Graphs that kernels launch: beside the launching graph, behind it and as siblings, a graph that
// launches itself until its work is done, and kernel nodes that kernels change. Integers, so that
// every result is exact. Build: nvcc -rdc=true -arch=native -o graph_launches_by_kernels
// graph_launches_by_kernels.cu -lcudadevrt
//
//   graph_launches_by_kernels [KERNELS]   from this file (made of the same source by nvcc -rdc=true
//   -ptx) for a GPU that links by itself
#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>

#include "library.h"

#define EXPECT(condition)                                                            \
  do {                                                                               \
    if (!(condition)) {                                                              \
      std::fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                                  \
    }                                                                                \
  } while (0)

constexpr int kMostNotes = 255, kNotMeasured = 77;

struct Log {
  int count, values[kMostNotes];
};

__device__ void note(Log* log, int value) {
  const int at = atomicAdd(&log->count, 1);
  if (at < kMostNotes) log->values[at] = value;
  __threadfence();
}

extern "C" __global__ void mark(Log* log, int value) {
  note(log, value + static_cast<int>(blockIdx.x));
}

enum How { kBeside, kBehind, kSibling };

// A negative value: an error.
extern "C" __global__ void launch(Log* log, cudaGraphExec_t graph, int how, int value) {
  note(log, value);
  const cudaStream_t streams[] = {cudaStreamGraphFireAndForget, cudaStreamGraphTailLaunch,
                                  cudaStreamGraphFireAndForgetAsSibling};
  const cudaError_t result = cudaGraphLaunch(graph, streams[how]);
  if (result != cudaSuccess) note(log, -static_cast<int>(result));
}

// One round of a loop that the device runs: halves `left` until it is 0.
extern "C" __global__ void round_of_loop(Log* log, int* left) {
  note(log, *left);
  *left /= 2;
  if (*left == 0) return;
  const cudaError_t result = cudaGraphLaunch(cudaGetCurrentGraphExec(), cudaStreamGraphTailLaunch);
  if (result != cudaSuccess) note(log, -static_cast<int>(result));
}

enum Change { kValue, kOff, kOn, kBlocks, kAll };

extern "C" __global__ void change(Log* log, cudaGraphDeviceNode_t node, int what, int value) {
  cudaError_t result = cudaSuccess;
  const size_t offset = sizeof(Log*);  // of the second parameter of mark
  if (what == kValue) result = cudaGraphKernelNodeSetParam(node, offset, value);
  if (what == kOff || what == kOn) result = cudaGraphKernelNodeSetEnabled(node, what == kOn);
  if (what == kBlocks) result = cudaGraphKernelNodeSetGridDim(node, dim3(value));
  if (what == kAll) {
    alignas(cudaGraphKernelNodeUpdate) char room[3 * sizeof(cudaGraphKernelNodeUpdate)];
    auto* const updates = reinterpret_cast<cudaGraphKernelNodeUpdate*>(room);
    for (int i = 0; i < 3; ++i) updates[i].node = node;
    updates[0].field = cudaGraphKernelNodeFieldParam;
    updates[0].updateData.param.pValue = &value;
    updates[0].updateData.param.offset = offset;
    updates[0].updateData.param.size = sizeof value;
    updates[1].field = cudaGraphKernelNodeFieldGridDim;
    updates[1].updateData.gridDim = dim3(2);
    updates[2].field = cudaGraphKernelNodeFieldEnabled;
    updates[2].updateData.isEnabled = 1;
    result = cudaGraphKernelNodeUpdatesApply(updates, 3);
  }
  if (result != cudaSuccess) note(log, -static_cast<int>(result));
}

namespace {

Log* notes;
cudaStream_t stream;
long long total = 0;
cudaLibrary_t library = nullptr;  // of the file; null: the program's own kernels

void* kernel(const void* own, const char* name) {
  if (library == nullptr) return const_cast<void*>(own);
  cudaKernel_t found;
  CHECK(cudaLibraryGetKernel(&found, library, name));
  return const_cast<void*>(reinterpret_cast<const void*>(found));
}
#define KERNEL(name) kernel(reinterpret_cast<const void*>(name), #name)

cudaGraphNode_t add(cudaGraph_t graph, void* kernel, void** arguments) {
  cudaKernelNodeParams params{};
  params.func = kernel;
  params.gridDim = params.blockDim = dim3(1);
  params.kernelParams = arguments;
  cudaGraphNode_t node;
  CHECK(cudaGraphAddKernelNode(&node, graph, nullptr, 0, &params));
  return node;
}

void depend(cudaGraph_t graph, cudaGraphNode_t first, cudaGraphNode_t second) {
#if CUDART_VERSION >= 13000
  CHECK(cudaGraphAddDependencies(graph, &first, &second, nullptr, 1));
#else
  CHECK(cudaGraphAddDependencies(graph, &first, &second, 1));
#endif
}

cudaGraphExec_t made(void* kernel, void** arguments, unsigned long long flags) {
  cudaGraph_t graph;
  CHECK(cudaGraphCreate(&graph, 0));
  add(graph, kernel, arguments);
  cudaGraphInstantiateParams params{};
  params.flags = flags;
  params.uploadStream = stream;
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiateWithParams(&exec, graph, &params));
  EXPECT(params.result_out == cudaGraphInstantiateSuccess);
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaStreamSynchronize(stream));
  return exec;
}

constexpr unsigned long long kForDevice =
    cudaGraphInstantiateFlagDeviceLaunch | cudaGraphInstantiateFlagUpload;

cudaGraphExec_t marking(int value) {
  void* arguments[] = {&notes, &value};
  return made(KERNEL(mark), arguments, kForDevice);
}
cudaGraphExec_t launching(cudaGraphExec_t inner, int how, int value, unsigned long long flags) {
  void* arguments[] = {&notes, &inner, &how, &value};
  return made(KERNEL(launch), arguments, flags);
}

// Launches the graph and expects these notes.
void run(cudaGraphExec_t graph, std::vector<int> expected, bool in_order = true) {
  CHECK(cudaMemsetAsync(notes, 0, sizeof(Log), stream));
  CHECK(cudaGraphLaunch(graph, stream));
  Log log;
  CHECK(cudaMemcpyAsync(&log, notes, sizeof log, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  std::vector<int> got(log.values, log.values + log.count);
  if (!in_order) std::sort(got.begin(), got.end());
  if (got != expected) {
    for (const int value : got) std::fprintf(stderr, "%d ", value);
    std::fprintf(stderr, "\n");
  }
  EXPECT(got == expected);
  for (const int value : got) total += value;
}

void launches() {
  cudaGraphExec_t inner = marking(10);
  for (const unsigned long long flags : {0ull, kForDevice}) {
    cudaGraphExec_t beside = launching(inner, kBeside, 1, flags);
    run(beside, {1, 10}, false);
    run(beside, {1, 10}, false);
    cudaGraphExec_t behind = launching(inner, kBehind, 2, flags);
    run(behind, {2, 10});
    cudaGraphExec_t sibling = launching(inner, kSibling, 3, flags);
    run(sibling, {3, 10}, false);
    for (cudaGraphExec_t exec : {beside, behind, sibling}) CHECK(cudaGraphExecDestroy(exec));
  }
  run(inner, {10});  // by the host
  CHECK(cudaGraphExecDestroy(inner));
}

void nested() {
  cudaGraphExec_t inner = marking(30);
  cudaGraphExec_t middle = launching(inner, kBehind, 20, kForDevice);
  cudaGraphExec_t outer = launching(middle, kBehind, 10, 0);
  for (int i = 0; i < 100; ++i) run(outer, {10, 20, 30});
  for (cudaGraphExec_t exec : {inner, middle, outer}) CHECK(cudaGraphExecDestroy(exec));
}

// What a tail launches as a tail comes before the tails that stand there already.
void order_of_tails() {
  cudaGraphExec_t inner = marking(30), last = marking(40);
  cudaGraphExec_t middle = launching(inner, kBehind, 20, kForDevice);
  cudaGraph_t graph;
  CHECK(cudaGraphCreate(&graph, 0));
  int how = kBehind, one = 1, two = 2;
  void* first[] = {&notes, &middle, &how, &one};
  void* second[] = {&notes, &last, &how, &two};
  cudaGraphNode_t begin = add(graph, KERNEL(launch), first);
  depend(graph, begin, add(graph, KERNEL(launch), second));
  cudaGraphExec_t outer;
  CHECK(cudaGraphInstantiate(&outer, graph, 0));
  CHECK(cudaGraphDestroy(graph));
  run(outer, {1, 2, 20, 30, 40});
  for (cudaGraphExec_t exec : {inner, last, middle, outer}) CHECK(cudaGraphExecDestroy(exec));
}

void loop() {
  int* left;
  CHECK(cudaMalloc(&left, sizeof(int)));
  void* arguments[] = {&notes, &left};
  cudaGraphExec_t exec = made(KERNEL(round_of_loop), arguments, kForDevice);
  for (const int from : {100, 7, 1}) {
    std::vector<int> expected;
    for (int value = from; value > 0; value /= 2) expected.push_back(value);
    CHECK(cudaMemcpy(left, &from, sizeof from, cudaMemcpyHostToDevice));
    run(exec, expected);
  }
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaFree(left));
}

void updated_by_host() {
  int value = 1;
  void* arguments[] = {&notes, &value};
  cudaGraph_t graph;
  CHECK(cudaGraphCreate(&graph, 0));
  cudaGraphNode_t node = add(graph, KERNEL(mark), arguments);
  cudaGraphExec_t inner;
  CHECK(cudaGraphInstantiate(&inner, graph, cudaGraphInstantiateFlagDeviceLaunch));
  CHECK(cudaGraphUpload(inner, stream));
  cudaGraphExec_t outer = launching(inner, kBehind, 100, 0);
  run(outer, {100, 1});
  cudaKernelNodeParams params{};
  params.func = KERNEL(mark);
  params.gridDim = params.blockDim = dim3(1);
  params.kernelParams = arguments;
  value = 2;
  CHECK(cudaGraphExecKernelNodeSetParams(inner, node, &params));
  CHECK(cudaGraphUpload(inner, stream));
  run(outer, {100, 2});
  CHECK(cudaGraphExecDestroy(inner));
  CHECK(cudaGraphExecDestroy(outer));
  CHECK(cudaGraphDestroy(graph));
}

// A graph in which a kernel changes the node behind it.
void change_node(int what, int value, const std::vector<int>& expected) {
  int first = 10;
  void* marks[] = {&notes, &first};
  cudaGraph_t graph;
  CHECK(cudaGraphCreate(&graph, 0));
  cudaGraphNode_t node = add(graph, KERNEL(mark), marks);
  cudaLaunchAttributeValue attribute;
  std::memset(&attribute, 0, sizeof attribute);
  attribute.deviceUpdatableKernelNode.deviceUpdatable = 1;
  constexpr auto kUpdatable = cudaLaunchAttributeDeviceUpdatableKernelNode;
  CHECK(cudaGraphKernelNodeSetAttribute(node, kUpdatable, &attribute));
  CHECK(cudaGraphKernelNodeGetAttribute(node, kUpdatable, &attribute));
  EXPECT(attribute.deviceUpdatableKernelNode.devNode != nullptr);
  void* arguments[] = {&notes, &attribute.deviceUpdatableKernelNode.devNode, &what, &value};
  cudaGraphNode_t changing = add(graph, KERNEL(change), arguments);
  depend(graph, changing, node);
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaGraphUpload(exec, stream));
  run(exec, expected, false);
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
}

}  // namespace

int main(int argc, char** argv) {
  int driver = 0, device_count = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver < 12040 ||
      cudaGetDeviceCount(&device_count) != cudaSuccess || device_count == 0) {
    std::printf("no GPU, or a driver without graphs that kernels launch\n");
    return kNotMeasured;
  }
  if (argc > 1)
    CHECK(cudaLibraryLoadFromFile(&library, argv[1], nullptr, nullptr, 0, nullptr, nullptr, 0));
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaMalloc(&notes, sizeof(Log)));
  const double seconds = timed([] {
    launches();
    nested();
    order_of_tails();
    loop();
    updated_by_host();
    change_node(kValue, 500, {500});
    change_node(kOff, 0, {});
    change_node(kOn, 0, {10});
    change_node(kBlocks, 3, {10, 11, 12});
    change_node(kAll, 600, {600, 601});
  });
  CHECK(cudaStreamSynchronize(stream));
  return report(true, {static_cast<double>(total)}, seconds);
}

// Graphs as frameworks use them: parameters that are read once and set with another pointer before
// each launch, capture positions that the program moves, bodies of conditions that are captured,
// graphs of the driver's API with functions of the runtime's, launches with attributes.
#include <cuda.h>

#include <cstring>
#include <vector>

#include "expect.h"

namespace {

constexpr unsigned kWords = 256;

#define CHECK_DRIVER(call) EXPECT((call) == CUDA_SUCCESS)

__global__ void put(unsigned* to, unsigned value, unsigned n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) to[i] = value;
}
__global__ void add(const unsigned* from, unsigned* to, unsigned n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) to[i] += from[i];
}
__global__ void count_down(unsigned* left, cudaGraphConditionalHandle handle) {
  *left -= 1;
  cudaGraphSetConditional(handle, *left);
}
template <typename T>
__global__ void scale(T* words, T by, unsigned n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) words[i] *= by;
}

struct Memory {
  Memory() {
    CHECK(cudaMalloc(&words, kWords * sizeof(unsigned)));
    CHECK(cudaMemset(words, 0, kWords * sizeof(unsigned)));
    CHECK(cudaDeviceSynchronize());  // streams here do not wait for the legacy one
  }
  ~Memory() { cudaFree(words); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  operator unsigned*() const { return words; }
  std::vector<unsigned> read() const {
    std::vector<unsigned> values(kWords);
    CHECK(cudaMemcpy(values.data(), words, kWords * sizeof(unsigned), cudaMemcpyDefault));
    return values;
  }
  bool is(unsigned value) const { return read() == std::vector<unsigned>(kWords, value); }
  unsigned* words = nullptr;
};

struct Stream {
  Stream() { CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)); }
  ~Stream() { cudaStreamDestroy(stream); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream; }
  cudaStream_t stream = nullptr;
};

std::vector<cudaGraphNode_t> nodes_of(cudaGraph_t graph) {
  size_t count = 0;
  CHECK(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  CHECK(cudaGraphGetNodes(graph, nodes.data(), &count));
  return nodes;
}

// The node's kernel, as the runtime and as the driver name it.
bool is_kernel(cudaGraphNode_t node, const void* function, cudaKernelNodeParams* params) {
  cudaGraphNodeType type;
  CHECK(cudaGraphNodeGetType(node, &type));
  if (type != cudaGraphNodeTypeKernel) return false;
  CHECK(cudaGraphKernelNodeGetParams(node, params));
  return params->func == function;
}

// llama.cpp keeps what it has read of its copies, and sets it with another destination before each
// launch; the executable graph is updated from the graph.
void parameters_are_kept_and_set_again() {
  const Memory from, first, second, third;
  const Stream stream;
  put<<<1, kWords, 0, stream>>>(from, 5, kWords);
  cudaGraph_t graph;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  add<<<2, kWords / 2, 0, stream>>>(from, first, kWords);
  scale<unsigned><<<1, kWords, 0, stream>>>(from, 1u, kWords);
  CHECK(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  cudaKernelNodeParams copy{}, other{};
  const auto nodes = nodes_of(graph);
  EXPECT(nodes.size() == 2);
  EXPECT(is_kernel(nodes[0], reinterpret_cast<const void*>(add), &copy));
  EXPECT(is_kernel(nodes[1], reinterpret_cast<const void*>(scale<unsigned>), &other));
  EXPECT(copy.gridDim.x == 2 && copy.blockDim.x == kWords / 2 && copy.extra == nullptr);
  for (unsigned round = 1; round <= 20; ++round) {
    for (const Memory* const to : {&first, &second, &third}) {
      unsigned* words = *to;
      copy.kernelParams[1] = &words;
      CHECK(cudaGraphKernelNodeSetParams(nodes[0], &copy));
      cudaGraphExecUpdateResultInfo info;
      CHECK(cudaGraphExecUpdate(exec, graph, &info));
      CHECK(cudaGraphLaunch(exec, stream));
      CHECK(cudaStreamSynchronize(stream));
      EXPECT(to->is(5 * round));
    }
  }
  // The same in the executable graph alone.
  unsigned* words = first;
  copy.kernelParams[1] = &words;
  CHECK(cudaGraphExecKernelNodeSetParams(exec, nodes[0], &copy));
  CHECK(cudaGraphLaunch(exec, stream));
  words = second;
  copy.func = reinterpret_cast<void*>(add);
  CHECK(cudaGraphExecKernelNodeSetParams(exec, nodes[0], &copy));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  EXPECT(first.is(105) && second.is(105) && third.is(100));
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
}

// PyTorch captures with a side stream that forks and joins, and looks at its nodes by the driver.
void captures_with_side_streams_are_told_by_the_driver() {
  const Memory a, b;
  const Stream stream, side;
  cudaEvent_t fork, join;
  CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
  CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  put<<<1, kWords, 0, stream>>>(a, 1, kWords);
  CHECK(cudaEventRecord(fork, stream));
  CHECK(cudaStreamWaitEvent(side, fork));
  put<<<1, kWords, 0, side>>>(b, 2, kWords);
  CHECK(cudaEventRecord(join, side));
  CHECK(cudaStreamWaitEvent(stream, join));
  add<<<1, kWords, 0, stream>>>(b, a, kWords);
  cudaGraph_t graph;
  CHECK(cudaStreamEndCapture(stream, &graph));
  cudaFunction_t of_put, of_add;
  CHECK(cudaGetFuncBySymbol(&of_put, reinterpret_cast<const void*>(put)));
  CHECK(cudaGetFuncBySymbol(&of_add, reinterpret_cast<const void*>(add)));
  const auto nodes = nodes_of(graph);
  EXPECT(nodes.size() == 3);
  for (size_t i = 0; i < 3; ++i) {
    CUDA_KERNEL_NODE_PARAMS params{};
    CHECK_DRIVER(cuGraphKernelNodeGetParams(nodes[i], &params));
    // A kernel of a library stands there, too, beside its function.
    EXPECT(params.func == (i == 2 ? of_add : of_put) && params.kern != nullptr);
    CUfunction function = nullptr;
    CHECK_DRIVER(cuKernelGetFunction(&function, params.kern));
    EXPECT(function == params.func);
    size_t offset = 0, size = 0;
    CHECK_DRIVER(cuFuncGetParamInfo(function, 1, &offset, &size));
    EXPECT(offset == 8 && size == (i == 2 ? 8u : 4u));
    const char* name = nullptr;
    CHECK_DRIVER(cuFuncGetName(&name, function));
    EXPECT(std::strstr(name, i == 2 ? "add" : "put") != nullptr);
  }
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiateWithFlags(&exec, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch));
  for (int i = 0; i < 3; ++i) CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  EXPECT(a.is(3) && b.is(2));
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaEventDestroy(fork));
  CHECK(cudaEventDestroy(join));
}

// XLA makes nodes by the driver, and gives executable graphs new parameters before each launch.
void nodes_of_the_driver_take_functions_of_the_runtime() {
  const Memory a, b, c;
  const Stream stream;
  cudaFunction_t of_put, of_add;
  CHECK(cudaGetFuncBySymbol(&of_put, reinterpret_cast<const void*>(put)));
  CHECK(cudaGetFuncBySymbol(&of_add, reinterpret_cast<const void*>(add)));
  CUgraph graph;
  CUgraphNode first, second, third;
  CHECK_DRIVER(cuGraphCreate(&graph, 0));
  unsigned *to = a, *from = b;
  unsigned value = 7, n = kWords;
  void* put_list[] = {&to, &value, &n};
  void* add_list[] = {&from, &to, &n};
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = of_put;
  params.gridDimX = params.gridDimY = params.gridDimZ = params.blockDimY = params.blockDimZ = 1;
  params.blockDimX = kWords;
  params.kernelParams = put_list;
  CHECK_DRIVER(cuGraphAddKernelNode(&first, graph, nullptr, 0, &params));
  CUgraphNodeParams general{};
  general.type = CU_GRAPH_NODE_TYPE_MEMSET;
  CHECK_DRIVER(cuCtxGetCurrent(&general.memset.ctx));
  general.memset.dst = reinterpret_cast<CUdeviceptr>(b.words);
  general.memset.value = 2;
  general.memset.elementSize = 4;
  general.memset.width = kWords;
  general.memset.height = 1;
  CHECK_DRIVER(cuGraphAddNode(&second, graph, nullptr, nullptr, 0, &general));
  params.func = of_add;
  params.kernelParams = add_list;
  const CUgraphNode before[] = {first, second};
  CHECK_DRIVER(cuGraphAddKernelNode(&third, graph, before, 2, &params));
  CUgraphExec exec;
  CHECK_DRIVER(cuGraphInstantiate(&exec, graph, 0));
  CHECK_DRIVER(cuGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  EXPECT(a.is(9) && b.is(2));
  // What is read is a value to be set, in every form, also by the runtime.
  CUDA_KERNEL_NODE_PARAMS got{};
  CHECK_DRIVER(cuGraphKernelNodeGetParams(first, &got));
  to = c;
  void* first_list[] = {&to, got.kernelParams[1], got.kernelParams[2]};
  got.kernelParams = first_list;
  CHECK_DRIVER(cuGraphExecKernelNodeSetParams(exec, first, &got));
  CHECK_DRIVER(cuGraphKernelNodeGetParams(third, &got));
  void* third_list[] = {got.kernelParams[0], &to, got.kernelParams[2]};
  got.kernelParams = third_list;
  CHECK_DRIVER(cuGraphExecKernelNodeSetParams(exec, third, &got));
  CHECK_DRIVER(cuGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  EXPECT(a.is(9) && c.is(9));
  cudaKernelNodeParams by_runtime{};
  CHECK(cudaGraphKernelNodeGetParams(first, &by_runtime));
  EXPECT(by_runtime.func == reinterpret_cast<void*>(put));
  value = 30;
  by_runtime.kernelParams[1] = &value;
  CHECK(cudaGraphExecKernelNodeSetParams(exec, first, &by_runtime));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  EXPECT(a.is(30) && c.is(11));
  CHECK(cudaGraphKernelNodeSetParams(first, &by_runtime));
  CUgraphExecUpdateResultInfo info{};
  CHECK_DRIVER(cuGraphExecUpdate(exec, graph, &info));
  CHECK_DRIVER(cuGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  EXPECT(a.is(32));
  CHECK_DRIVER(cuGraphExecDestroy(exec));
  CHECK_DRIVER(cuGraphDestroy(graph));
}

// A library that adds nodes to the graph of a capture, and moves the capture behind them.
void captures_are_continued_behind_added_nodes() {
  const Memory a, b;
  const Stream stream;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  put<<<1, kWords, 0, stream>>>(a, 1, kWords);
  cudaStreamCaptureStatus status;
  unsigned long long id = 0;
  cudaGraph_t graph = nullptr, ended = nullptr;
  const cudaGraphNode_t* last = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  size_t count = 0;
  CHECK(cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &last, &edges, &count));
  EXPECT(status == cudaStreamCaptureStatusActive && count == 1);
  cudaGraphNode_t added, empty;
  CHECK(cudaGraphAddMemcpyNode1D(&added, graph, last, count, b, a, kWords * sizeof(unsigned),
                                 cudaMemcpyDeviceToDevice));
  CHECK(cudaGraphAddEmptyNode(&empty, graph, nullptr, 0));
  CHECK(cudaGraphAddDependencies(graph, &added, &empty, nullptr, 1));
  CHECK(cudaStreamUpdateCaptureDependencies(stream, &empty, nullptr, 1,
                                            cudaStreamSetCaptureDependencies));
  add<<<1, kWords, 0, stream>>>(a, b, kWords);
  CHECK(cudaStreamEndCapture(stream, &ended));
  EXPECT(ended == graph && nodes_of(graph).size() == 4);
  cudaGraphExec_t exec;
  cudaGraphInstantiateParams how{};
  how.flags = cudaGraphInstantiateFlagUpload;
  how.uploadStream = stream;
  CHECK(cudaGraphInstantiateWithParams(&exec, graph, &how));
  EXPECT(how.result_out == cudaGraphInstantiateSuccess);
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  EXPECT(b.is(2));
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
}

// A loop whose body is captured. Whoever has the graph need not be given it at the end.
void bodies_of_conditions_are_captured(bool are_named) {
  const Memory left, sum, one;
  const Stream stream;
  put<<<1, kWords>>>(one, 1, kWords);
  put<<<1, kWords>>>(left, 5, kWords);
  CHECK(cudaDeviceSynchronize());
  cudaGraph_t graph, same;
  CHECK(cudaGraphCreate(&graph, 0));
  cudaGraphConditionalHandle handle;
  CHECK(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
  cudaGraphNodeParams params{};
  params.type = cudaGraphNodeTypeConditional;
  params.conditional.handle = handle;
  params.conditional.type = cudaGraphCondTypeWhile;
  params.conditional.size = 1;
  cudaGraphNode_t node;
  CHECK(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &params));
  const cudaGraph_t body = params.conditional.phGraph_out[0];
  CHECK(cudaStreamBeginCaptureToGraph(stream, body, nullptr, nullptr, 0,
                                      cudaStreamCaptureModeRelaxed));
  add<<<1, kWords, 0, stream>>>(one, sum, kWords);
  count_down<<<1, 1, 0, stream>>>(left, handle);
  CHECK(cudaStreamEndCapture(stream, are_named ? &same : nullptr));
  EXPECT(!are_named || same == body);
  cudaKernelNodeParams inside{};
  EXPECT(is_kernel(nodes_of(body)[0], reinterpret_cast<const void*>(add), &inside));
  EXPECT(is_kernel(nodes_of(body)[1], reinterpret_cast<const void*>(count_down), &inside));
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  EXPECT(sum.is(5));
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
}

// Launches with attributes, whose nodes are read, set and launched again.
void attributes_stay_with_their_nodes() {
  const Memory a;
  const Stream stream;
  for (const cudaLaunchAttributeID id :
       {cudaLaunchAttributePriority, cudaLaunchAttributeCooperative,
        cudaLaunchAttributeProgrammaticStreamSerialization}) {
    CHECK(cudaMemset(a, 0, kWords * sizeof(unsigned)));
    CHECK(cudaDeviceSynchronize());  // as in Memory
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    put<<<1, kWords, 0, stream>>>(a, 1, kWords);
    cudaLaunchConfig_t config{};
    cudaLaunchAttribute attribute{};
    attribute.id = id;
    if (id == cudaLaunchAttributePriority)
      attribute.val.priority = -1;
    else
      attribute.val.cooperative = 1;
    config.gridDim = dim3(1);
    config.blockDim = dim3(kWords);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    unsigned *from = a, *to = a, n = kWords;
    void* list[] = {&from, &to, &n};
    CHECK(cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(add), list));
    cudaGraph_t graph;
    CHECK(cudaStreamEndCapture(stream, &graph));
    const auto nodes = nodes_of(graph);
    cudaKernelNodeParams params{};
    EXPECT(is_kernel(nodes[1], reinterpret_cast<const void*>(add), &params));
    CHECK(cudaGraphKernelNodeSetParams(nodes[1], &params));
    if (id != cudaLaunchAttributeProgrammaticStreamSerialization) {
      cudaLaunchAttributeValue value{};
      CHECK(cudaGraphKernelNodeGetAttribute(nodes[1], id, &value));
      EXPECT(value.priority == (id == cudaLaunchAttributePriority ? -1 : 1));
    }
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphExecKernelNodeSetParams(exec, nodes[1], &params));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(id == cudaLaunchAttributeProgrammaticStreamSerialization || a.is(2));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
  }
}

}  // namespace

int main() {
  parameters_are_kept_and_set_again();
  captures_with_side_streams_are_told_by_the_driver();
  nodes_of_the_driver_take_functions_of_the_runtime();
  captures_are_continued_behind_added_nodes();
  bodies_of_conditions_are_captured(true);
  bodies_of_conditions_are_captured(false);
  attributes_stay_with_their_nodes();
  std::printf("graphs_of_frameworks: right\n");
}

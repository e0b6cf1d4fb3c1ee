// Older versions of functions, which programs made with older toolkits call: each does what the
// newest one does, in the older form.
#include "tests/conformance/by_name.h"
#include "tests/conformance/kernels.h"

namespace {

CUdeviceptr words;
CUfunction fill;

void show_words(const char* text) {
  uint32_t out[4]{};
  NEED(cuCtxSynchronize());
  NEED(cuMemcpyDtoH(out, words, sizeof out));
  std::printf("  %s: %x %x %x %x\n", text, out[0], out[1], out[2], out[3]);
  NEED(cuMemsetD32(words, 0, 4));
  NEED(cuCtxSynchronize());  // streams that do not wait for the default stream come next
}

void contexts() {
  std::puts("contexts");
  CUcontext made = nullptr;
  CUdevice device = 7;
  SHOW(call("cuCtxCreate_v2", &made, unsigned{CU_CTX_SCHED_YIELD}, CUdevice{0}));
  unsigned flags = 0;
  SHOW(cuCtxGetFlags(&flags));
  VALUE(flags);
  SHOW(call("cuCtxGetDevice_v2", &device, made));
  VALUE(device);
  SHOW(call("cuCtxSynchronize_v2", made));
  SHOW(call("cuCtxAttach", &made, 0u));
  SHOW(call("cuCtxDetach", made));
  SHOW(cuCtxDestroy(made));
  SHOW(call("cuCtxCreate_v3", &made, static_cast<CUexecAffinityParam*>(nullptr), 0,
            unsigned{CU_CTX_SCHED_SPIN}, CUdevice{0}));
  SHOW(cuCtxGetFlags(&flags));
  VALUE(flags);
  SHOW(cuCtxDestroy(made));
  void* found = nullptr;
  SHOW(call("cuGetProcAddress", "cuMemAlloc", &found, 12000, cuuint64_t{0}));
  VALUE(found == ::dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
}

CUDA_KERNEL_NODE_PARAMS_v1 kernel_params(void** parameters) {
  CUDA_KERNEL_NODE_PARAMS_v1 params{};
  params.func = fill;
  params.gridDimX = params.gridDimY = params.gridDimZ = params.blockDimY = params.blockDimZ = 1;
  params.blockDimX = 4;
  params.kernelParams = parameters;
  return params;
}

void kernels() {
  std::puts("kernels in graphs");
  unsigned value = 5, count = 3;
  void* parameters[] = {&words, &value, &count};
  CUDA_KERNEL_NODE_PARAMS_v1 params = kernel_params(parameters), read{};
  CUgraph graph;
  CUgraphNode first = nullptr, second = nullptr, error = nullptr;
  const CUgraphNode* const none = nullptr;
  NEED(cuGraphCreate(&graph, 0));
  using Params = const CUDA_KERNEL_NODE_PARAMS_v1*;
  SHOW(call("cuGraphAddKernelNode", &first, graph, none, size_t{0}, static_cast<Params>(&params)));
  SHOW(call("cuGraphKernelNodeGetParams", first, &read));
  VALUE(read.func == fill);
  VALUE(read.blockDimX);
  value = 6;
  SHOW(call("cuGraphKernelNodeSetParams", first, static_cast<Params>(&params)));
  char log[100]{};
  CUgraphExec exec = nullptr;
  SHOW(call("cuGraphInstantiate_v2", &exec, graph, &error, static_cast<char*>(log), sizeof log));
  SHOW(cuGraphLaunch(exec, nullptr));
  show_words("set");
  value = 7;
  SHOW(call("cuGraphExecKernelNodeSetParams", exec, first, static_cast<Params>(&params)));
  SHOW(cuGraphLaunch(exec, nullptr));
  show_words("set in the executable graph");
  CUgraphExecUpdateResult outcome{};
  SHOW(call("cuGraphExecUpdate", exec, graph, &error, &outcome));
  VALUE(outcome);
  SHOW(cuGraphLaunch(exec, nullptr));
  show_words("updated");
  SHOW(cuGraphAddEmptyNode(&second, graph, nullptr, 0));
  SHOW(call("cuGraphExecUpdate", exec, graph, &error, &outcome));
  VALUE(outcome);
  SHOW(cuGraphExecDestroy(exec));
  SHOW(call("cuGraphInstantiate", &exec, graph, &error, static_cast<char*>(log), sizeof log));
  SHOW(cuGraphLaunch(exec, nullptr));
  show_words("of the first instantiate");
  SHOW(cuGraphExecDestroy(exec));
  SHOW(call("cuGraphInstantiateWithFlags", &exec, graph, 0ull));
  SHOW(cuGraphLaunch(exec, nullptr));
  show_words("with flags");
}

void edges() {
  std::puts("edges");
  CUgraph graph;
  CUgraphNode nodes[3]{}, from[3]{}, to[3]{};
  NEED(cuGraphCreate(&graph, 0));
  for (CUgraphNode& node : nodes) NEED(cuGraphAddEmptyNode(&node, graph, nullptr, 0));
  const CUgraphNode* const begin = nodes;
  SHOW(call("cuGraphAddDependencies", graph, begin, begin + 1, size_t{2}));
  size_t count = 3;
  SHOW(call("cuGraphGetEdges", graph, &from[0], &to[0], &count));
  VALUE(count);
  VALUE(from[0] == nodes[0] && to[0] == nodes[1]);
  SHOW(call("cuGraphNodeGetDependencies", nodes[2], &from[0], &(count = 3)));
  VALUE(count);
  VALUE(from[0] == nodes[1]);
  VALUE(from[1] == nullptr);
  SHOW(call("cuGraphNodeGetDependentNodes", nodes[0], &to[0], &(count = 3)));
  VALUE(count);
  VALUE(to[0] == nodes[1]);
  SHOW(call("cuGraphRemoveDependencies", graph, begin, begin + 1, size_t{1}));
  SHOW(call("cuGraphGetEdges", graph, &from[0], &to[0], &(count = 3)));
  VALUE(count);
  VALUE(from[0] == nodes[1] && to[0] == nodes[2]);
}

void nodes_by_kind() {
  std::puts("nodes by kind");
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_MEMSET;
  params.memset.dst = words;
  params.memset.elementSize = 4;
  params.memset.value = 0x11;
  params.memset.width = 2;
  params.memset.height = 1;
  CUgraph graph;
  CUgraphNode node = nullptr;
  CUgraphExec exec = nullptr;
  const CUgraphNode* const none = nullptr;
  NEED(cuGraphCreate(&graph, 0));
  SHOW(call("cuGraphAddNode", &node, graph, none, size_t{0}, &params));
  NEED(cuGraphInstantiate(&exec, graph, 0));
  SHOW(cuGraphLaunch(exec, nullptr));
  show_words("added");
  params.memset.value = 0x22;
  SHOW(cuGraphExecNodeSetParams(exec, node, &params));
  SHOW(cuGraphLaunch(exec, nullptr));
  show_words("set in the executable graph");
  NEED(cuGraphExecDestroy(exec));
  params.memset.value = 0x33;
  SHOW(cuGraphNodeSetParams(node, &params));
  NEED(cuGraphInstantiate(&exec, graph, 0));
  SHOW(cuGraphLaunch(exec, nullptr));
  show_words("set");
}

void captures() {
  std::puts("captures");
  CUstream stream;
  CUgraph graph = nullptr, given = nullptr;
  const CUgraphNode* dependencies = nullptr;
  size_t count = 9, nodes = 0;
  CUstreamCaptureStatus status{};
  cuuint64_t id = 0, again = 0;
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  SHOW(call("cuStreamBeginCapture", stream));
  SHOW(cuMemsetD32Async(words, 0x44, 1, stream));
  SHOW(call("cuStreamGetCaptureInfo", stream, &status, &id));
  VALUE(status);
  SHOW(call("cuStreamGetCaptureInfo_v2", stream, &status, &again, &graph, &dependencies, &count));
  VALUE(id == again);
  VALUE(count);
  SHOW(call("cuStreamUpdateCaptureDependencies", stream, static_cast<CUgraphNode*>(nullptr),
            size_t{0}, unsigned{CU_STREAM_SET_CAPTURE_DEPENDENCIES}));
  SHOW(cuMemsetD32Async(words + 4, 0x55, 1, stream));
  SHOW(call("cuStreamEndCapture", stream, &given));
  SHOW(cuGraphGetRootNodes(given, nullptr, &nodes));
  VALUE(nodes);
}

void copies() {
  std::puts("batches of copies");
  CUstream stream;
  CUdeviceptr from = 0;
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  NEED(cuMemAlloc(&from, 16));
  NEED(cuMemsetD32(from, 0x66, 4));
  NEED(cuCtxSynchronize());
  CUdeviceptr targets[] = {words, words + 8}, sources[] = {from, from};
  size_t sizes[] = {4, 8}, index = 0, failed = 77;
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  SHOW(call("cuMemcpyBatchAsync", &targets[0], &sources[0], &sizes[0], size_t{2}, &attributes,
            &index, size_t{1}, &failed, stream));
  NEED(cuStreamSynchronize(stream));
  show_words("of ranges");
  CUDA_MEMCPY3D_BATCH_OP box{};
  box.src.type = box.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  box.src.op.ptr.ptr = from;
  box.dst.op.ptr.ptr = words + 4;
  box.extent = {8, 1, 1};
  box.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  SHOW(call("cuMemcpy3DBatchAsync", size_t{1}, &box, &failed, 0ull, stream));
  NEED(cuStreamSynchronize(stream));
  show_words("of boxes");
}

void managed() {
  std::puts("managed memory");
  CUdeviceptr memory = 0;
  NEED(cuMemAllocManaged(&memory, 65536, CU_MEM_ATTACH_GLOBAL));
  SHOW(call("cuMemAdvise", memory, size_t{65536}, CU_MEM_ADVISE_SET_READ_MOSTLY, CUdevice{0}));
  int mostly = 0;
  SHOW(cuMemRangeGetAttribute(&mostly, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory, 65536));
  VALUE(mostly);
  *reinterpret_cast<int*>(memory) = 9;
  SHOW(call("cuMemPrefetchAsync", memory, size_t{65536}, CUdevice{CU_DEVICE_CPU}, CUstream{}));
  SHOW(cuCtxSynchronize());
  VALUE(*reinterpret_cast<int*>(memory));
  SHOW(cuMemFree(memory));
}

}  // namespace

int main() {
  NEED(cuInit(0));
  contexts();
  make_context();
  CUmodule module;
  NEED(cuModuleLoadData(&module, kKernels));
  NEED(cuModuleGetFunction(&fill, module, "fill"));
  NEED(cuMemAlloc(&words, 16));
  NEED(cuMemsetD32(words, 0, 4));
  kernels();
  edges();
  nodes_by_kind();
  captures();
  copies();
  managed();
  return 0;
}

// Stream capture: what becomes a node, fork and join through events, modes and threads, everything
// that ends a capture, and wrong calls.
#include <thread>

#include "tests/conformance/graphs.h"

namespace {

CUcontext context;
CUstream stream, other;  // both do not wait for the default stream
CUfunction fill_kernel;
CUdeviceptr a, b, c;

void show_status(CUstream which) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = cuStreamIsCapturing(which, &status);
  std::printf("  capture: %s %d\n", error_name(result), static_cast<int>(status));
}

size_t count_nodes(CUgraph graph) {
  size_t nodes = 0;
  NEED(cuGraphGetNodes(graph, nullptr, &nodes));
  return nodes;
}
size_t count_edges(CUgraph graph) {
  size_t edges = 0;
  NEED(cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
  return edges;
}

// Ends the capture, shows the graph, launches it and destroys it.
void end_and_launch(CUstream origin = stream) {
  CUgraph graph = nullptr;
  if (show("cuStreamEndCapture", cuStreamEndCapture(origin, &graph)) != CUDA_SUCCESS) {
    VALUE(graph == nullptr);
    return;
  }
  VALUE(count_nodes(graph));
  VALUE(count_edges(graph));
  CUgraphExec exec;
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  SHOW(cuGraphLaunch(exec, origin));
  SHOW(cuStreamSynchronize(origin));
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(graph));
}

CUresult fill(CUdeviceptr p, uint32_t value, CUstream in) {
  uint32_t n = kWords;
  void* parameters[] = {&p, &value, &n};
  return cuLaunchKernel(fill_kernel, 2, 1, 1, 32, 1, 1, 0, in, parameters, nullptr);
}

void begin(CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) {
  NEED(cuStreamBeginCapture(stream, mode));
}

void CUDA_CB set_number(void* data) { *static_cast<int*>(data) += 1; }

void a_line_of_work() {
  std::printf("-- one stream\n");
  int calls = 0;
  static uint32_t host[kWords];
  show_status(stream);
  SHOW(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  show_status(stream);
  SHOW(cuMemsetD32Async(a, 3, kWords, stream));
  SHOW(fill(b, 4, stream));
  SHOW(cuMemcpyDtoDAsync(c, b, kWords * 4, stream));
  SHOW(cuLaunchHostFunc(stream, set_number, &calls));
  SHOW(cuMemcpyDtoHAsync(host, c, kWords * 4, stream));
  SHOW(cuStreamWriteValue32(stream, a, 9, 0));
  // Nothing has run yet.
  VALUE(calls);
  CUgraph graph = nullptr;
  cuuint64_t id = 0;
  CUstreamCaptureStatus status;
  const CUgraphNode* nodes = nullptr;
  size_t count = 0;
  SHOW(cuStreamGetCaptureInfo(stream, &status, &id, &graph, &nodes, nullptr, &count));
  VALUE(status);
  VALUE(id != 0);
  VALUE(count_nodes(graph));
  VALUE(count);
  CUgraphNodeType type;
  SHOW(cuGraphNodeGetType(nodes[0], &type));
  VALUE(type);
  end_and_launch();
  VALUE(calls);
  VALUE(host[0]);
  show_first("a", a);
  show_status(stream);
}

void memory() {
  std::printf("-- memory\n");
  begin();
  CUdeviceptr p = 0;
  SHOW(cuMemAllocAsync(&p, 4096, stream));
  VALUE(p != 0);
  SHOW(fill(p, 31, stream));
  SHOW(cuMemcpyDtoDAsync(a, p, 4, stream));
  SHOW(cuMemFreeAsync(p, stream));
  end_and_launch();
  show_first("a", a);
}

CUgraphNode last_node() {
  CUstreamCaptureStatus status;
  const CUgraphNode* nodes = nullptr;
  size_t count = 0;
  NEED(cuStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &nodes, nullptr, &count));
  return count == 1 ? nodes[0] : nullptr;
}

void what_nodes_hold() {
  std::printf("-- parameters of captured nodes\n");
  uint32_t value = 17, n = kWords;
  void* parameters[] = {&a, &value, &n};
  begin();
  SHOW(cuLaunchCooperativeKernel(fill_kernel, 2, 1, 1, 32, 1, 1, 0, stream, parameters));
  value = 0;
  CUDA_KERNEL_NODE_PARAMS kernel{};
  SHOW(cuGraphKernelNodeGetParams(last_node(), &kernel));
  VALUE(kernel.gridDimX);
  VALUE(*static_cast<uint32_t*>(kernel.kernelParams[1]));
  CUkernelNodeAttrValue attribute{};
  SHOW(
      cuGraphKernelNodeGetAttribute(last_node(), CU_KERNEL_NODE_ATTRIBUTE_COOPERATIVE, &attribute));
  VALUE(attribute.cooperative);
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = a;
  copy.dstDevice = b;
  copy.srcPitch = copy.dstPitch = 32;
  copy.WidthInBytes = 8;
  copy.Height = 4;
  SHOW(cuMemcpy2DAsync(&copy, stream));
  CUDA_MEMCPY3D got{};
  SHOW(cuGraphMemcpyNodeGetParams(last_node(), &got));
  VALUE(got.WidthInBytes);
  VALUE(got.Height);
  VALUE(got.Depth);
  SHOW(cuMemsetD2D16Async(c, 32, 0x102, 3, 2, stream));
  CUDA_MEMSET_NODE_PARAMS memset{};
  SHOW(cuGraphMemsetNodeGetParams(last_node(), &memset));
  VALUE(memset.value);
  VALUE(memset.elementSize);
  VALUE(memset.width);
  VALUE(memset.height);
  end_and_launch();
  show_first("a", a);
  show_first("b", b);
  show_first("c", c);
}

void fork_and_join() {
  std::printf("-- fork and join\n");
  CUevent fork, join;
  NEED(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
  NEED(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
  begin();
  SHOW(cuMemsetD32Async(a, 1, kWords, stream));
  SHOW(cuEventRecord(fork, stream));
  SHOW(cuStreamWaitEvent(other, fork, 0));
  show_status(other);
  SHOW(cuMemsetD32Async(b, 2, kWords, other));
  SHOW(fill(c, 3, stream));
  SHOW(cuEventRecord(join, other));
  SHOW(cuStreamWaitEvent(stream, join, 0));
  SHOW(cuMemcpyDtoDAsync(c, b, 4, stream));
  SHOW(cuEventQuery(fork));
  show_status(stream);
  end_and_launch();
  show_status(other);

  std::printf("-- the same with an event asked in relaxed mode\n");
  begin(CU_STREAM_CAPTURE_MODE_RELAXED);
  SHOW(cuMemsetD32Async(a, 5, kWords, stream));
  SHOW(cuEventRecord(fork, stream));
  SHOW(cuStreamWaitEvent(other, fork, 0));
  SHOW(cuMemsetD32Async(b, 6, kWords, other));
  SHOW(fill(c, 3, stream));
  SHOW(cuEventRecord(join, other));
  SHOW(cuStreamWaitEvent(stream, join, 0));
  SHOW(cuMemcpyDtoDAsync(c, b, 4, stream));
  end_and_launch();
  show_first("a", a);
  show_first("c", c);

  std::printf("-- without the join\n");
  begin();
  SHOW(cuMemsetD32Async(a, 1, kWords, stream));
  SHOW(cuEventRecord(fork, stream));
  SHOW(cuStreamWaitEvent(other, fork, 0));
  SHOW(cuMemsetD32Async(b, 2, kWords, other));
  CUgraph graph;
  end_and_launch();
  show_status(stream);
  show_status(other);

  std::printf("-- ended in the other stream\n");
  begin();
  SHOW(cuMemsetD32Async(a, 1, kWords, stream));
  NEED(cuEventRecord(fork, stream));
  NEED(cuStreamWaitEvent(other, fork, 0));
  SHOW(cuStreamEndCapture(other, &graph));
  show_status(stream);
  end_and_launch();

  std::printf("-- an event from before the capture\n");
  NEED(cuEventRecord(fork, other));
  begin();
  SHOW(cuStreamWaitEvent(stream, fork, 0));
  show_status(stream);
  end_and_launch();
  NEED(cuStreamSynchronize(other));

  std::printf("-- two captures meet\n");
  begin();
  SHOW(cuMemsetD32Async(a, 1, kWords, stream));
  NEED(cuEventRecord(fork, stream));
  SHOW(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_GLOBAL));
  SHOW(cuStreamWaitEvent(other, fork, 0));
  show_status(stream);
  show_status(other);
  end_and_launch(stream);
  end_and_launch(other);

  std::printf("-- events of their own\n");
  begin();
  SHOW(cuEventRecordWithFlags(fork, stream, CU_EVENT_RECORD_EXTERNAL));
  SHOW(cuStreamWaitEvent(stream, fork, CU_EVENT_WAIT_EXTERNAL));
  end_and_launch();
  SHOW(cuEventQuery(fork));
  SHOW(cuEventRecordWithFlags(fork, stream, CU_EVENT_RECORD_EXTERNAL));
  SHOW(cuStreamWaitEvent(stream, fork, CU_EVENT_WAIT_EXTERNAL));
  NEED(cuEventDestroy(fork));
  NEED(cuEventDestroy(join));
}

// Records that are no call of their own: by a launch, and by a node of a graph.
void recorded_outside() {
  CUevent by_launch, by_graph;
  NEED(cuEventCreate(&by_launch, CU_EVENT_DISABLE_TIMING));
  NEED(cuEventCreate(&by_graph, CU_EVENT_DISABLE_TIMING));
  std::printf("-- events that nobody has recorded\n");
  begin();
  SHOW(cuStreamWaitEvent(stream, by_launch, 0));
  SHOW(cuStreamWaitEvent(stream, by_graph, 0));
  end_and_launch();

  std::printf("-- an event that a launch has recorded\n");
  CUlaunchAttribute completion{};
  completion.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
  completion.value.launchCompletionEvent.event = by_launch;
  CUlaunchConfig config{};
  config.gridDimX = 2;
  config.blockDimX = 32;
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.hStream = other;
  config.attrs = &completion;
  config.numAttrs = 1;
  uint32_t value = 7, n = kWords;
  void* parameters[] = {&a, &value, &n};
  SHOW(cuLaunchKernelEx(&config, fill_kernel, parameters, nullptr));
  begin();
  SHOW(cuStreamWaitEvent(stream, by_launch, 0));
  show_status(stream);
  end_and_launch();

  std::printf("-- an event that a graph has recorded\n");
  CUgraph graph;
  CUgraphExec exec;
  CUgraphNode node;
  NEED(cuGraphCreate(&graph, 0));
  SHOW(cuGraphAddEventRecordNode(&node, graph, nullptr, 0, by_graph));
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  SHOW(cuGraphLaunch(exec, other));
  begin();
  SHOW(cuStreamWaitEvent(stream, by_graph, 0));
  show_status(stream);
  end_and_launch();

  std::printf("-- the event of the node is another one now\n");
  CUevent former, later;
  CUgraphExec changed;
  NEED(cuEventCreate(&former, CU_EVENT_DISABLE_TIMING));
  NEED(cuEventCreate(&later, CU_EVENT_DISABLE_TIMING));
  NEED(cuGraphEventRecordNodeSetEvent(node, former));
  NEED(cuGraphInstantiate(&changed, graph, 0));
  SHOW(cuGraphExecEventRecordNodeSetEvent(changed, node, later));
  SHOW(cuGraphLaunch(changed, other));
  begin();
  SHOW(cuStreamWaitEvent(stream, former, 0));
  SHOW(cuStreamWaitEvent(stream, later, 0));
  end_and_launch();
  NEED(cuGraphExecDestroy(changed));
  NEED(cuEventDestroy(former));
  NEED(cuEventDestroy(later));

  std::printf("-- an event of a capture, recorded by a graph since\n");
  CUgraph ended = nullptr;
  begin();
  SHOW(cuEventRecord(by_graph, stream));
  SHOW(cuStreamEndCapture(stream, &ended));
  SHOW(cuStreamWaitEvent(other, by_graph, 0));
  SHOW(cuGraphLaunch(exec, other));
  SHOW(cuStreamWaitEvent(other, by_graph, 0));
  SHOW(cuEventSynchronize(by_graph));
  NEED(cuGraphDestroy(ended));
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(graph));
  NEED(cuEventDestroy(by_launch));
  NEED(cuEventDestroy(by_graph));
}

void wrong_beginnings() {
  std::printf("-- wrong beginnings and ends\n");
  CUgraph graph;
  SHOW(cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL));
  SHOW(cuStreamBeginCapture(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_GLOBAL));
  SHOW(cuStreamBeginCapture(stream, static_cast<CUstreamCaptureMode>(7)));
  SHOW(cuStreamEndCapture(stream, &graph));
  SHOW(cuStreamEndCapture(stream, nullptr));
  SHOW(cuStreamIsCapturing(stream, nullptr));
  SHOW(cuStreamUpdateCaptureDependencies(stream, nullptr, nullptr, 0, 0));
  begin();
  SHOW(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  show_status(stream);
  end_and_launch();
}

void unsafe_calls() {
  CUdeviceptr p;
  const char* const names[] = {"global", "thread-local", "relaxed"};
  for (int mode = 0; mode < 3; ++mode) {
    std::printf("-- unsafe calls, %s\n", names[mode]);
    begin(static_cast<CUstreamCaptureMode>(mode));
    if (SHOW(cuMemAlloc(&p, 64)) == CUDA_SUCCESS) SHOW(cuMemFree(p));
    show_status(stream);
    SHOW(cuMemsetD32Async(a, 1, kWords, stream));
    end_and_launch();
    begin(static_cast<CUstreamCaptureMode>(mode));
    std::thread([&] {
      NEED(cuCtxSetCurrent(context));
      if (show("in another thread, cuMemAlloc", cuMemAlloc(&p, 64)) == CUDA_SUCCESS)
        NEED(cuMemFree(p));
      CUgraph graph;
      show("in another thread, cuStreamEndCapture", cuStreamEndCapture(stream, &graph));
    }).join();
    show_status(stream);
    if (mode != 2) end_and_launch();
  }
  std::printf("-- a relaxed thread\n");
  begin();
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  SHOW(cuThreadExchangeStreamCaptureMode(&mode));
  VALUE(mode);
  if (SHOW(cuMemAlloc(&p, 64)) == CUDA_SUCCESS) SHOW(cuMemFree(p));
  SHOW(cuThreadExchangeStreamCaptureMode(&mode));
  VALUE(mode);
  end_and_launch();
}

void calls_that_end_it() {
  std::printf("-- calls that end a capture\n");
  begin();
  SHOW(cuStreamSynchronize(stream));
  show_status(stream);
  end_and_launch();
  begin();
  SHOW(cuStreamQuery(stream));
  end_and_launch();
  begin();
  SHOW(cuCtxSynchronize());
  end_and_launch();

  std::printf("-- the legacy stream beside a blocking one\n");
  CUstream blocking;
  NEED(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  NEED(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
  show_status(CU_STREAM_LEGACY);
  show_status(blocking);
  SHOW(cuMemsetD32Async(a, 1, kWords, CU_STREAM_LEGACY));
  show_status(blocking);
  end_and_launch(blocking);
  NEED(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
  SHOW(cuMemsetD32(a, 1, kWords));
  end_and_launch(blocking);

  std::printf("-- and beside one that does not wait\n");
  begin(CU_STREAM_CAPTURE_MODE_RELAXED);
  SHOW(cuMemsetD32Async(a, 1, kWords, CU_STREAM_LEGACY));
  show_status(CU_STREAM_LEGACY);
  end_and_launch();
  NEED(cuCtxSynchronize());  // the fill of the legacy stream
  NEED(cuStreamDestroy(blocking));
}

void into_a_graph() {
  std::printf("-- into a graph\n");
  CUgraph graph, ended = nullptr;
  CUgraphNode first;
  NEED(cuGraphCreate(&graph, 0));
  NEED(cuGraphAddEmptyNode(&first, graph, nullptr, 0));
  SHOW(cuStreamBeginCaptureToGraph(stream, nullptr, nullptr, nullptr, 0,
                                   CU_STREAM_CAPTURE_MODE_GLOBAL));
  SHOW(cuStreamBeginCaptureToGraph(stream, graph, &first, nullptr, 1,
                                   CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUgraphExec exec;
  SHOW(cuMemsetD32Async(a, 41, kWords, stream));
  // The next node depends on the first one, too, and then on it alone.
  SHOW(cuStreamUpdateCaptureDependencies(stream, &first, nullptr, 1,
                                         CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
  SHOW(cuMemsetD32Async(b, 42, kWords, stream));
  SHOW(cuStreamUpdateCaptureDependencies(stream, &first, nullptr, 1,
                                         CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  SHOW(cuMemsetD32Async(c, 43, kWords, stream));
  SHOW(cuStreamUpdateCaptureDependencies(stream, nullptr, nullptr, 1, 0));
  SHOW(cuStreamUpdateCaptureDependencies(stream, &first, nullptr, 1, 5));
  SHOW(cuStreamEndCapture(stream, &ended));
  VALUE(ended == graph);
  VALUE(count_nodes(graph));
  VALUE(count_edges(graph));
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  SHOW(cuGraphLaunch(exec, stream));
  SHOW(cuStreamSynchronize(stream));
  show_first("a", a);
  show_first("b", b);
  show_first("c", c);

  std::printf("-- a graph in a capture\n");
  begin();
  SHOW(cuGraphLaunch(exec, stream));
  end_and_launch();
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(graph));
}

}  // namespace

int main() {
  const World world;
  context = world.context;
  stream = world.stream;
  NEED(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  fill_kernel = world.fill;
  a = world.a;
  b = world.b;
  c = world.c;
  a_line_of_work();
  memory();
  what_nodes_hold();
  fork_and_join();
  recorded_outside();
  wrong_beginnings();
  unsafe_calls();
  calls_that_end_it();
  into_a_graph();
  return 0;
}

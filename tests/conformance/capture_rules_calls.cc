// The other part of capture_rules.cc: wrong calls and ends, modes of threads, graphs, nodes.
#include "tests/conformance/capture_rules.h"

void invalid() {
  CUevent event = make_event();
  CUgraph graph = nullptr;
  section("an invalidated capture");
  SHOW(cuStreamBeginCapture(a, kGlobal));
  SHOW(work(a));
  SHOW(cuEventRecord(event, a));
  SHOW(cuStreamWaitEvent(b, event, 0));
  SHOW(cuStreamSynchronize(a));
  info(a);
  info(b);
  SHOW(work(a));
  SHOW(launch(b));
  SHOW(cuEventRecord(event, a));
  SHOW(cuStreamWaitEvent(a, event, 0));
  SHOW(cuStreamWaitEvent(c, event, 0));
  SHOW(cuEventQuery(event));
  SHOW(cuStreamSynchronize(a));
  SHOW(cuStreamQuery(b));
  SHOW(work(nullptr));
  SHOW(cuCtxSynchronize());
  CUdeviceptr more = 0;
  SHOW(cuMemAlloc(&more, 256));
  SHOW(cuMemFree(more));
  SHOW(cuStreamBeginCapture(a, kGlobal));
  SHOW(cuStreamUpdateCaptureDependencies_v2(a, nullptr, nullptr, 0, 1));
  SHOW(on_thread([&] { return cuStreamEndCapture(a, &graph); }));
  SHOW(cuStreamEndCapture(b, &graph));
  end(a);
  info(b);

  section("wrong calls in a capture");
#define ALONE(call)                         \
  do {                                      \
    NEED(cuStreamBeginCapture(a, kGlobal)); \
    SHOW(call);                             \
    info(a);                                \
    end(a);                                 \
  } while (0)
  ALONE(launch(a, 0));
  ALONE(cuMemcpyHtoDAsync(memory, &event, 0, a));
  ALONE(cuMemsetD8Async(memory, 0, 0, a));
  ALONE(cuMemsetD2D8Async(memory, 64, 0, 16, 0, a));
  ALONE(cuMemcpyDtoDAsync(memory, memory + 512, 0, a));
  ALONE(cuMemcpyHtoDAsync(memory, nullptr, 4, a));
  ALONE(cuMemcpyAsync(16, memory, 4, a));
  ALONE(cuMemcpyHtoDAsync(memory, &event, 1ull << 40, a));
  ALONE(cuMemsetD32Async(16, 0, 4, a));
  ALONE(cuMemsetD32Async(memory + 1, 0, 4, a));
  ALONE(cuMemsetD32Async(memory, 0, 100 * kBytes, a));
  ALONE(cuLaunchHostFunc(a, nullptr, nullptr));
  ALONE(cuStreamWriteValue32(a, memory, 1, 77));
  ALONE(cuStreamWriteValue32(a, 16, 1, 0));
  ALONE(cuStreamWriteValue32(a, memory + 1, 1, 0));
  ALONE(cuMemAlloc(nullptr, 0));
  ALONE(cuEventRecordWithFlags(event, a, 2));
  ALONE(cuStreamWaitEvent(a, event, 2));
  ALONE(cuMemcpyPeerAsync(memory, nullptr, memory + 512, nullptr, 16, a));
  ALONE(cuStreamAddCallback(a, callback, nullptr, 0));
  CUDA_MEMCPY2D flat{};
  ALONE(cuMemcpy2DAsync(&flat, a));
  flat.srcMemoryType = flat.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  flat.srcDevice = memory + 1024;
  flat.dstDevice = memory;
  flat.srcPitch = 32;
  flat.dstPitch = 64;
  flat.WidthInBytes = 16;
  flat.Height = 0;
  ALONE(cuMemcpy2DAsync(&flat, a));
  flat.Height = 4;
  ALONE(cuMemcpy2DAsync(&flat, a));
  flat.srcPitch = 8;
  ALONE(cuMemcpy2DAsync(&flat, a));

  section("destroyed streams");
  SHOW(cuStreamBeginCapture(a, kGlobal));
  SHOW(work(a));
  SHOW(cuEventRecord(event, a));
  SHOW(cuStreamWaitEvent(b, event, 0));
  SHOW(work(b));
  SHOW(cuStreamDestroy(b));
  b = nullptr;
  info(a);
  end(a);
  section("a destroyed origin");
  SHOW(cuStreamBeginCapture(a, kGlobal));
  SHOW(work(a));
  SHOW(cuEventRecord(event, a));
  SHOW(cuStreamWaitEvent(b, event, 0));
  SHOW(work(b));
  SHOW(cuStreamDestroy(a));
  a = nullptr;
  info(b);
  end(b);
  CUdeviceptr after = 0;
  SHOW(cuMemAlloc(&after, 256));
  SHOW(cuEventQuery(event));
}

void modes() {
  section("modes of threads");
  CUdeviceptr more = 0;
  CUstreamCaptureMode mode = kRelaxed;
  SHOW(cuStreamBeginCapture(a, kGlobal));
  SHOW(cuThreadExchangeStreamCaptureMode(&mode));
  VALUE(mode);
  SHOW(cuMemAlloc(&more, 256));
  info(a);
  mode = kThread;
  SHOW(cuThreadExchangeStreamCaptureMode(&mode));
  VALUE(mode);
  SHOW(cuMemAlloc(&more, 256));
  info(a);
  end(a);
  mode = kGlobal;
  SHOW(cuThreadExchangeStreamCaptureMode(&mode));
  for (const auto of_capture : {kGlobal, kThread, kRelaxed}) {
    for (const auto of_thread : {kGlobal, kThread, kRelaxed}) {
      SHOW(cuStreamBeginCapture(a, of_capture));
      VALUE(of_capture);
      VALUE(of_thread);
      SHOW(on_thread([&] {
        CUstreamCaptureMode own = of_thread;
        (void)cuThreadExchangeStreamCaptureMode(&own);
        return cuMemAlloc(&more, 256);
      }));
      info(a);
      end(a);
    }
    for (const auto of_thread : {kThread, kRelaxed}) {
      CUstreamCaptureMode own = of_thread;
      (void)cuThreadExchangeStreamCaptureMode(&own);
      SHOW(cuStreamBeginCapture(a, of_capture));
      VALUE(of_capture);
      VALUE(of_thread);
      SHOW(cuMemAlloc(&more, 256));
      info(a);
      end(a);
      (void)cuThreadExchangeStreamCaptureMode(&own);
    }
  }
}

void graphs() {
  section("captures to a graph");
  CUgraph graph = nullptr, same = nullptr;
  size_t count = 0;
  NEED(cuGraphCreate(&graph, 0));
  CUgraphNode node = nullptr, foreign = nullptr;
  NEED(cuGraphAddEmptyNode(&node, graph, nullptr, 0));
  CUgraph strange = nullptr;
  NEED(cuGraphCreate(&strange, 0));
  NEED(cuGraphAddEmptyNode(&foreign, strange, nullptr, 0));
  SHOW(cuStreamBeginCaptureToGraph(a, nullptr, nullptr, nullptr, 0, kGlobal));
  SHOW(cuStreamBeginCaptureToGraph(a, graph, &foreign, nullptr, 1, kGlobal));
  SHOW(cuStreamBeginCaptureToGraph(a, graph, nullptr, nullptr, 1, kGlobal));
  info(a);
  SHOW(cuStreamBeginCaptureToGraph(a, graph, &node, nullptr, 1, kGlobal));
  info(a);
  SHOW(work(a));
  SHOW(cuStreamUpdateCaptureDependencies_v2(a, &foreign, nullptr, 1, 0));
  info(a);
  SHOW(cuStreamUpdateCaptureDependencies_v2(a, &node, nullptr, 1,
                                            CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
  info(a);
  SHOW(cuStreamUpdateCaptureDependencies_v2(a, &node, nullptr, 1, 2));
  SHOW(cuStreamUpdateCaptureDependencies_v2(a, nullptr, nullptr, 1, 0));
  SHOW(cuStreamUpdateCaptureDependencies_v2(c, &node, nullptr, 1, 0));
  info(a);
  SHOW(launch(a));
  SHOW(cuStreamEndCapture(a, &same));
  VALUE(same == graph);
  contents(graph);

  section("invalidated captures to a graph");
  SHOW(cuStreamBeginCaptureToGraph(a, graph, nullptr, nullptr, 0, kGlobal));
  SHOW(work(a));
  SHOW(cuStreamSynchronize(a));
  SHOW(cuStreamEndCapture(a, &same));
  VALUE(same == nullptr);
  SHOW(cuGraphGetNodes(graph, nullptr, &count));

  section("changes during a capture");
  CUgraph inside = nullptr;
  SHOW(cuStreamBeginCapture(a, kGlobal));
  SHOW(work(a));
  const CUgraphNode* last = nullptr;
  SHOW(cuStreamGetCaptureInfo_v3(a, nullptr, nullptr, &inside, &last, nullptr, &count));
  CUstreamCaptureStatus status{};
  SHOW(cuStreamGetCaptureInfo_v3(a, &status, nullptr, &inside, &last, nullptr, &count));
  VALUE(count);
  CUgraphNode first = last[0];
  SHOW(cuGraphAddEmptyNode(&node, inside, &first, 1));
  SHOW(cuStreamUpdateCaptureDependencies_v2(a, &node, nullptr, 1,
                                            CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  info(a);
  SHOW(work(a));
  end(a);

  section("a child graph");
  CUgraphExec exec = nullptr;
  SHOW(cuStreamBeginCapture(a, kGlobal));
  SHOW(work(a));
  SHOW(work(a));
  SHOW(cuStreamEndCapture(a, &inside));
  NEED(cuGraphInstantiate(&exec, inside, 0));
  for (const auto mode : {kGlobal, kThread, kRelaxed}) {
    SHOW(cuStreamBeginCapture(a, mode));
    SHOW(cuGraphUpload(exec, b));
    info(a);
    end(a);
    SHOW(cuStreamBeginCapture(a, mode));
    SHOW(cuGraphUpload(exec, a));
    info(a);
    end(a);
    SHOW(cuStreamBeginCapture(a, mode));
    SHOW(cuGraphLaunch(exec, a));
    info(a);
    end(a);
    SHOW(cuStreamBeginCapture(a, mode));
    SHOW(cuGraphLaunch(exec, b));
    info(a);
    end(a);
    SHOW(cuStreamBeginCapture(a, mode));
    SHOW(cuGraphLaunch(exec, nullptr));
    end(a);
    SHOW(cuStreamBeginCapture(a, mode));
    SHOW(cuGraphUpload(exec, nullptr));
    end(a);
    SHOW(cuStreamBeginCapture(a, mode));
    SHOW(on_thread([&] { return cuGraphLaunch(exec, b); }));
    info(a);
    end(a);
  }
  // Questions and changes of graphs touch no capture.
  CUgraphExec more = nullptr;
  SHOW(cuStreamBeginCapture(a, kGlobal));
  SHOW(cuGraphInstantiate(&more, inside, 0));
  info(a);
  CUgraphExecUpdateResultInfo outcome{};
  SHOW(cuGraphExecUpdate(more, inside, &outcome));
  info(a);
  SHOW(cuGraphExecDestroy(more));
  info(a);
  SHOW(cuGraphDestroy(inside));
  info(a);
  end(a);
}

void kinds() {
  section("kinds of nodes");
  static unsigned char pageable[256];
  SHOW(cuStreamBeginCapture(a, kGlobal));
  SHOW(launch(a));
  info(a);
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attribute.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 64;
  config.blockDimY = config.blockDimZ = 1;
  config.hStream = a;
  config.attrs = &attribute;
  config.numAttrs = 1;
  unsigned value = 7, n = 64;
  void* parameters[] = {&memory, &value, &n};
  SHOW(cuLaunchKernelEx(&config, fill, parameters, nullptr));
  info(a);
  SHOW(launch(a));
  info(a);
  SHOW(cuMemcpyHtoDAsync(memory, pageable, 64, a));
  info(a);
  SHOW(cuMemcpyAsync(memory, memory + 512, 64, a));
  info(a);
  SHOW(cuLaunchHostFunc(a, host_function, nullptr));
  info(a);
  SHOW(cuStreamWriteValue32(a, memory, 1, 0));
  info(a);
  CUgraph graph = nullptr;
  SHOW(cuStreamEndCapture(a, &graph));
  contents(graph);
  size_t count = 0;
  NEED(cuGraphGetNodes(graph, nullptr, &count));
  std::vector<CUgraphNode> nodes(count);
  NEED(cuGraphGetNodes(graph, nodes.data(), &count));
  CUDA_MEMCPY3D copy{};
  NEED(cuGraphMemcpyNodeGetParams(nodes[3], &copy));
  std::printf("copy %d %d %zu %zu %zu pitch %zu %zu height %zu %zu host %d\n", copy.srcMemoryType,
              copy.dstMemoryType, copy.WidthInBytes, copy.Height, copy.Depth, copy.srcPitch,
              copy.dstPitch, copy.srcHeight, copy.dstHeight, copy.srcHost == pageable);
  NEED(cuGraphMemcpyNodeGetParams(nodes[4], &copy));
  std::printf("copy %d %d %zu %zu %zu pitch %zu %zu height %zu %zu\n", copy.srcMemoryType,
              copy.dstMemoryType, copy.WidthInBytes, copy.Height, copy.Depth, copy.srcPitch,
              copy.dstPitch, copy.srcHeight, copy.dstHeight);
  CUkernelNodeAttrValue got{};
  SHOW(cuGraphKernelNodeGetAttribute(nodes[0], CU_LAUNCH_ATTRIBUTE_PRIORITY, &got));
  VALUE(got.priority);
  SHOW(cuStreamBeginCapture(a, kGlobal));
  SHOW(cuMemsetD2D16Async(memory, 64, 5, 16, 4, a));
  SHOW(cuMemsetD2D8Async(memory, 64, 5, 16, 1, a));
  SHOW(cuMemsetD16Async(memory, 5, 16, a));
  CUDA_MEMCPY2D flat{};
  flat.srcMemoryType = CU_MEMORYTYPE_HOST;
  flat.srcHost = pageable;
  flat.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  flat.dstDevice = memory;
  flat.srcPitch = 32;
  flat.dstPitch = 64;
  flat.dstXInBytes = 8;
  flat.srcY = 1;
  flat.WidthInBytes = 16;
  flat.Height = 4;
  SHOW(cuMemcpy2DAsync(&flat, a));
  SHOW(cuStreamEndCapture(a, &graph));
  count = 4;
  NEED(cuGraphGetNodes(graph, nodes.data(), &count));
  for (size_t i = 0; i < 3; ++i) {
    CUDA_MEMSET_NODE_PARAMS params{};
    NEED(cuGraphMemsetNodeGetParams(nodes[i], &params));
    std::printf("fill pitch %zu value %u element %u width %zu height %zu\n", params.pitch,
                params.value, params.elementSize, params.width, params.height);
  }
  NEED(cuGraphMemcpyNodeGetParams(nodes[3], &copy));
  std::printf("copy %d %d %zu %zu %zu pitch %zu %zu height %zu %zu at %zu %zu %zu %zu\n",
              copy.srcMemoryType, copy.dstMemoryType, copy.WidthInBytes, copy.Height, copy.Depth,
              copy.srcPitch, copy.dstPitch, copy.srcHeight, copy.dstHeight, copy.srcXInBytes,
              copy.srcY, copy.dstXInBytes, copy.dstY);
}

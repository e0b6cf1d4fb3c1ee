// What both parts of capture_rules.cc share: streams, work for them, and how captures are shown.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <functional>
#include <thread>

#include "tests/conformance/conformance.h"
#include "tests/conformance/kernels.h"

// Of the per-thread default stream.
extern "C" CUresult cuMemsetD8_v2_ptds(CUdeviceptr address, unsigned char value, size_t count);

inline constexpr auto kGlobal = CU_STREAM_CAPTURE_MODE_GLOBAL;
inline constexpr auto kThread = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
inline constexpr auto kRelaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
inline constexpr size_t kBytes = 4096;

inline CUstream a, b, c;  // a and b wait for the legacy stream, c does not
inline CUdeviceptr memory;
inline CUfunction fill;

inline void CUDA_CB callback(CUstream, CUresult, void*) {}
inline void CUDA_CB host_function(void*) {}

inline CUevent make_event(unsigned flags = CU_EVENT_DISABLE_TIMING) {
  CUevent event;
  NEED(cuEventCreate(&event, flags));
  return event;
}

inline CUresult work(CUstream stream, unsigned value = 1) {
  return cuMemsetD32Async(memory, value, kBytes / 4, stream);
}

inline CUresult launch(CUstream stream, unsigned grid = 1) {
  unsigned value = 7, count = 64;
  void* parameters[] = {&memory, &value, &count};
  return cuLaunchKernel(fill, grid, 1, 1, 64, 1, 1, 0, stream, parameters, nullptr);
}

inline void info(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 77;
  auto graph = reinterpret_cast<CUgraph>(8);
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* data = nullptr;
  size_t count = 99;
  const CUresult result =
      cuStreamGetCaptureInfo_v3(stream, &status, &id, &graph, &nodes, &data, &count);
  std::printf("  info: %s status=%d id=%s graph=%s dependencies=%zu\n", error_name(result),
              static_cast<int>(status),
              id == 77  ? "untouched"
              : id == 0 ? "none"
                        : "some",
              graph == reinterpret_cast<CUgraph>(8) ? "untouched"
              : graph == nullptr                    ? "no"
                                                    : "yes",
              count);
  if (result != CUDA_SUCCESS) return;
  for (size_t i = 0; i < count && nodes != nullptr; ++i) {
    CUgraphNodeType type{};
    NEED(cuGraphNodeGetType(nodes[i], &type));
    std::printf("    type %d", static_cast<int>(type));
    if (data != nullptr)
      std::printf(" edge %d %d %d", data[i].from_port, data[i].to_port, data[i].type);
    std::printf("\n");
  }
}

// Nodes by their place, edges by the places of their nodes.
inline void contents(CUgraph graph) {
  size_t nodes = 0, edges = 0;
  NEED(cuGraphGetNodes(graph, nullptr, &nodes));
  NEED(cuGraphGetEdges_v2(graph, nullptr, nullptr, nullptr, &edges));
  std::vector<CUgraphNode> all(nodes), from(edges), to(edges);
  std::vector<CUgraphEdgeData> data(edges);
  if (nodes != 0) NEED(cuGraphGetNodes(graph, all.data(), &nodes));
  if (edges != 0) NEED(cuGraphGetEdges_v2(graph, from.data(), to.data(), data.data(), &edges));
  std::printf("    nodes:");
  for (CUgraphNode node : all) {
    CUgraphNodeType type{};
    NEED(cuGraphNodeGetType(node, &type));
    std::printf(" %d", static_cast<int>(type));
  }
  std::vector<std::string> lines;
  for (size_t i = 0; i < edges; ++i) {
    const auto place = [&](CUgraphNode node) {
      return std::find(all.begin(), all.end(), node) - all.begin();
    };
    char line[64];
    const int length = std::snprintf(line, sizeof line, " %td>%td", place(from[i]), place(to[i]));
    if (data[i].from_port != 0 || data[i].to_port != 0 || data[i].type != 0)
      std::snprintf(line + length, sizeof line - static_cast<size_t>(length), "(%d%d%d)",
                    data[i].from_port, data[i].to_port, data[i].type);
    lines.push_back(line);
  }
  std::sort(lines.begin(), lines.end());
  std::printf(" edges:");
  for (const std::string& line : lines) std::printf("%s", line.c_str());
  std::printf("\n");
}

inline void end(CUstream stream) {
  CUgraph graph = reinterpret_cast<CUgraph>(1);
  const CUresult result = cuStreamEndCapture(stream, &graph);
  std::printf("  end: %s graph=%s", error_name(result),
              graph == nullptr                        ? "none"
              : graph == reinterpret_cast<CUgraph>(1) ? "untouched"
                                                      : "some");
  if (result == CUDA_SUCCESS && graph != nullptr) {
    std::printf("\n");
    contents(graph);
    NEED(cuGraphDestroy(graph));
  } else {
    std::printf("\n");
  }
  for (CUstream each : {a, b, c}) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (each != nullptr && cuStreamIsCapturing(each, &status) == CUDA_SUCCESS &&
        status != CU_STREAM_CAPTURE_STATUS_NONE) {
      std::printf("  still captured: %d\n", static_cast<int>(status));
      if (each != stream) (void)cuStreamEndCapture(each, &graph);
    }
  }
}

inline CUresult on_thread(const std::function<CUresult()>& call) {
  CUcontext context;
  NEED(cuCtxGetCurrent(&context));
  CUresult result = CUDA_SUCCESS;
  std::thread([&] {
    NEED(cuCtxSetCurrent(context));
    result = call();
  }).join();
  return result;
}

inline void section(const char* name) {
  std::printf("-- %s\n", name);
  for (CUstream* each : {&a, &b, &c}) {
    if (*each != nullptr) (void)cuStreamDestroy(*each);
    NEED(cuStreamCreate(each, each == &c ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
  }
}

// capture_rules_calls.cc
void invalid();
void modes();
void graphs();
void kinds();

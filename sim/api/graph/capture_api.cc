// Stream capture: beginning and end, what a capture is, what its next node depends on.
#include <algorithm>

#include "sim/graph/api.h"
#include "sim/graph/stream_capture.h"

using namespace fargpu::sim;

namespace {

bool valid_mode(CUstreamCaptureMode mode) {
  return mode >= CU_STREAM_CAPTURE_MODE_GLOBAL && mode <= CU_STREAM_CAPTURE_MODE_RELAXED;
}

// With the mutex of all captures: body(const std::shared_ptr<Stream>&, StreamCapture*), which is
// null where the stream is not captured. `asks`: the legacy stream beside a captured one gives
// CUDA_ERROR_STREAM_CAPTURE_IMPLICIT.
template <typename Body>
CUresult with_capture(CUstream handle, bool asks, Body&& body) {
  return with_stream(handle, [&](Context& context, const auto& stream) -> CUresult {
    Captures& captures = Captures::get();
    std::lock_guard lock(captures.mutex());
    if (asks && stream->role == StreamRole::kLegacy && captures.blocking(context, false))
      return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    return body(stream, static_cast<StreamCapture*>(captures.of(*stream).get()));
  });
}

CUstreamCaptureStatus status_of(const Capture* capture) {
  if (capture == nullptr) return CU_STREAM_CAPTURE_STATUS_NONE;
  return capture->valid ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
}

// `graph`: nullptr, or the one to capture into.
CUresult begin(CUstream handle, CUstreamCaptureMode mode, const std::shared_ptr<Graph>& graph,
               CapturedPlace first) {
  return with_capture(handle, false, [&](const auto& stream, StreamCapture* capture) -> CUresult {
    if (!valid_mode(mode)) return CUDA_ERROR_INVALID_VALUE;
    if (stream->role == StreamRole::kLegacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
    std::shared_ptr<Graph> target = graph;
    {
      std::lock_guard lock(graph_mutex());
      if (!target) target = make_graph();
      target->capturing = true;
    }
    auto made = std::make_shared<StreamCapture>(target, mode, stream, std::move(first));
    made->into_given = graph != nullptr;
    Captures::get().add(std::move(made));
    return CUDA_SUCCESS;
  });
}

// The capture has ended, with success or not. A graph without an owner ends, even if it was the
// application's.
CUresult finish(StreamCapture& capture, CUgraph* out) {
  CUresult result = CUDA_SUCCESS;
  if (!capture.valid) {
    result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  } else if (capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
             capture.thread != this_thread_number()) {
    result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  } else if (!capture.joined()) {
    result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  }
  std::lock_guard lock(graph_mutex());
  Graph& graph = *capture.graph();
  if (result == CUDA_SUCCESS && (out != nullptr || capture.into_given)) {
    graph.capturing = false;
    if (out != nullptr) *out = handle_of(graph);
  } else {
    end_captured(graph);
  }
  return result;
}

// The nodes that a caller gives, as dependencies in the graph.
CUresult read_place(const Graph& graph, const CUgraphNode* nodes, const CUgraphEdgeData* data,
                    size_t count, CapturedPlace* place) {
  std::vector<Dependency> dependencies;
  const CUresult result =
      resolve_dependencies(graph, CU_GRAPH_NODE_TYPE_KERNEL, nodes, data, count, &dependencies);
  for (const auto& [node, edge] : dependencies) {
    place->nodes.push_back(handle_of(*node));
    place->data.push_back(edge);
  }
  return result;
}

CUresult info(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
              const CUgraphNode** nodes, const CUgraphEdgeData** data, bool with_data,
              size_t* count) {
  return with_capture(handle, true, [&](const auto& stream, StreamCapture* capture) -> CUresult {
    if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *status = status_of(capture);
    if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
    if (data != nullptr && nodes == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CapturedPlace& frontier = capture->frontier(*stream);
    const bool lossless = (with_data && data != nullptr) || nodes == nullptr ||
                          std::ranges::all_of(frontier.data, plain);
    if (!lossless) return CUDA_ERROR_LOSSY_QUERY;
    if (id != nullptr) *id = capture->id;
    if (graph != nullptr) *graph = handle_of(*capture->graph());
    if (nodes != nullptr) *nodes = frontier.nodes.data();
    if (data != nullptr) *data = frontier.data.data();
    if (count != nullptr) *count = frontier.nodes.size();
    return CUDA_SUCCESS;
  });
}

}  // namespace

CUresult CUDAAPI cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
  return begin(hStream, mode, nullptr, {});
}

CUresult CUDAAPI cuStreamBeginCapture(CUstream hStream) {
  return begin(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL, nullptr, {});
}

CUresult CUDAAPI cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
                                             const CUgraphNode* dependencies,
                                             const CUgraphEdgeData* dependencyData,
                                             size_t numDependencies, CUstreamCaptureMode mode) {
  std::shared_ptr<Graph> graph;
  CapturedPlace first;
  const CUresult result = with_graphs([&]() -> CUresult {
    graph = find_graph(hGraph);
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    if (graph->capturing) return CUDA_ERROR_ILLEGAL_STATE;
    return read_place(*graph, dependencies, dependencyData, numDependencies, &first);
  });
  return result == CUDA_SUCCESS ? begin(hStream, mode, graph, std::move(first)) : result;
}

CUresult CUDAAPI cuStreamEndCapture(CUstream hStream, CUgraph* phGraph) {
  if (phGraph != nullptr) *phGraph = nullptr;
  if (const CUresult result = Captures::get().legacy(hStream); result != CUDA_SUCCESS)
    return result;
  return with_capture(hStream, true, [&](const auto& stream, StreamCapture* capture) -> CUresult {
    if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->streams.front() != stream) {
      capture->valid = false;
      return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    const CUresult result = finish(*capture, phGraph);
    Captures::get().remove(*capture);
    return result;
  });
}

CUresult CUDAAPI cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus* captureStatus) {
  return with_capture(hStream, true, [&](const auto&, StreamCapture* capture) -> CUresult {
    if (captureStatus == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *captureStatus = status_of(capture);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                        cuuint64_t* id_out) {
  return info(hStream, captureStatus_out, id_out, nullptr, nullptr, nullptr, false, nullptr);
}

CUresult CUDAAPI cuStreamGetCaptureInfo_v2(CUstream hStream,
                                           CUstreamCaptureStatus* captureStatus_out,
                                           cuuint64_t* id_out, CUgraph* graph_out,
                                           const CUgraphNode** dependencies_out,
                                           size_t* numDependencies_out) {
  return info(hStream, captureStatus_out, id_out, graph_out, dependencies_out, nullptr, false,
              numDependencies_out);
}

CUresult CUDAAPI cuStreamGetCaptureInfo_v3(CUstream hStream,
                                           CUstreamCaptureStatus* captureStatus_out,
                                           cuuint64_t* id_out, CUgraph* graph_out,
                                           const CUgraphNode** dependencies_out,
                                           const CUgraphEdgeData** edgeData_out,
                                           size_t* numDependencies_out) {
  return info(hStream, captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out, true,
              numDependencies_out);
}

CUresult CUDAAPI cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode* dependencies,
                                                      const CUgraphEdgeData* dependencyData,
                                                      size_t numDependencies, unsigned int flags) {
  if (const CUresult result = Captures::get().legacy(hStream); result != CUDA_SUCCESS)
    return result;
  return with_capture(hStream, true, [&](const auto& stream, StreamCapture* capture) -> CUresult {
    if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
    if (!capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) return CUDA_ERROR_INVALID_VALUE;
    CapturedPlace place;
    {
      std::lock_guard lock(graph_mutex());
      const CUresult result =
          read_place(*capture->graph(), dependencies, dependencyData, numDependencies, &place);
      if (result != CUDA_SUCCESS) return result;
    }
    if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) capture->leave(*stream);
    capture->join(stream, place);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode* dependencies,
                                                   size_t numDependencies, unsigned int flags) {
  return cuStreamUpdateCaptureDependencies_v2(hStream, dependencies, nullptr, numDependencies,
                                              flags);
}

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  if (!Driver::initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  if (mode == nullptr || !valid_mode(*mode)) return CUDA_ERROR_INVALID_VALUE;
  std::swap(thread_capture_mode(), *mode);
  return CUDA_SUCCESS;
}

// Stream capture: begin, end, questions, dependencies.
#include <algorithm>

#include "client/capture/captures.h"
#include "generated/client/manual.h"

namespace fargpu::client {
namespace {

// CUDA_ERROR_INVALID_VALUE: nodes are promised that are not there.
CUresult position_of(const CUgraphNode* nodes, const CUgraphEdgeData* edges, size_t count,
                     Position* position) {
  if (count != 0 && nodes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i)
    position->add(nodes[i], edges == nullptr ? CUgraphEdgeData{} : edges[i]);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult manual_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  if (mode == nullptr || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  std::swap(capture::thread_mode(), *mode);
  return CUDA_SUCCESS;
}

CUresult manual_cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
  return capture::begin(hStream, mode);
}

CUresult manual_cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
                                            const CUgraphNode* dependencies,
                                            const CUgraphEdgeData* dependencyData,
                                            size_t numDependencies, CUstreamCaptureMode mode) {
  Position first;
  const CUresult result = position_of(dependencies, dependencyData, numDependencies, &first);
  return result == CUDA_SUCCESS ? capture::begin_to(hStream, mode, hGraph, first) : result;
}

CUresult manual_cuStreamEndCapture(CUstream hStream, CUgraph* phGraph) {
  if (phGraph != nullptr) *phGraph = nullptr;
  return capture::end(hStream, phGraph);
}

CUresult manual_cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus* captureStatus) {
  if (captureStatus == nullptr) return CUDA_ERROR_INVALID_VALUE;
  capture::Info info;
  const CUresult result = capture::get_info(hStream, &info);
  *captureStatus = info.status;
  return result;
}

CUresult manual_cuStreamGetCaptureInfo_v3(CUstream hStream,
                                          CUstreamCaptureStatus* captureStatus_out,
                                          cuuint64_t* id_out, CUgraph* graph_out,
                                          const CUgraphNode** dependencies_out,
                                          const CUgraphEdgeData** edgeData_out,
                                          size_t* numDependencies_out) {
  if (captureStatus_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  capture::Info info;
  const CUresult result = capture::get_info(hStream, &info);
  *captureStatus_out = info.status;
  // The rest is left alone, as natively.
  if (result != CUDA_SUCCESS || info.status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return result;
  const Position& position = *info.position;
  if (dependencies_out != nullptr && edgeData_out == nullptr &&
      !std::all_of(position.edges.begin(), position.edges.end(), says_nothing))
    return CUDA_ERROR_LOSSY_QUERY;
  if (id_out != nullptr) *id_out = info.id;
  if (graph_out != nullptr) *graph_out = info.graph;
  if (dependencies_out != nullptr) *dependencies_out = position.nodes.data();
  if (edgeData_out != nullptr) *edgeData_out = position.edges.data();
  if (numDependencies_out != nullptr) *numDependencies_out = position.nodes.size();
  return CUDA_SUCCESS;
}

CUresult manual_cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode* dependencies,
                                                     const CUgraphEdgeData* dependencyData,
                                                     size_t numDependencies, unsigned int flags) {
  CUresult result = capture::check_captured(hStream);
  if (result != CUDA_SUCCESS) return result;
  if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) return CUDA_ERROR_INVALID_VALUE;
  Position position;
  result = position_of(dependencies, dependencyData, numDependencies, &position);
  return result == CUDA_SUCCESS
             ? capture::set_position(hStream, position, flags == CU_STREAM_ADD_CAPTURE_DEPENDENCIES)
             : result;
}

}  // namespace fargpu::client

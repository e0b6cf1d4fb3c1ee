// Executable graphs.
#include <vector>

#include "client/capture/captures.h"
#include "client/entry/call.h"
#include "client/graph/executable_graph.h"
#include "client/graph/typed_params.h"
#include "generated/client/manual.h"

namespace fargpu::client {
namespace {

constexpr cuuint64_t kFlags =
    CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
    CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

// `memory`: what its nodes allocate.
CUresult make_executable(CUgraphExec* exec, CUgraph handle, cuuint64_t flags, GraphOutcome* outcome,
                         std::vector<CUdeviceptr>* memory) {
  GraphLock lock;
  const Graph* const graph = find_graph(handle);
  if (exec == nullptr || graph == nullptr || (flags & ~kFlags) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = stands_alone(*graph); result != CUDA_SUCCESS) return result;
  const bool by_device = (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0;
  if (by_device && (flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0) {
    outcome->found = CUDA_GRAPH_INSTANTIATE_ERROR;
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!has_current_context()) return CUDA_ERROR_INVALID_CONTEXT;
  *memory = memory_of_nodes(*graph);
  return instantiate(lock, *graph, flags, exec, outcome);
}

CUresult make(CUgraphExec* exec, CUgraph handle, cuuint64_t flags, GraphOutcome* outcome) {
  std::vector<CUdeviceptr> memory;
  const CUresult result = make_executable(exec, handle, flags, outcome, &memory);
  if (result != CUDA_SUCCESS) return result;
  const GraphLock lock;
  Graph* const graph = find_graph(handle);
  const GraphExec* const made = find_exec(*exec);
  if (graph == nullptr || made == nullptr) return CUDA_SUCCESS;  // another thread has ended it
  graph->executable = made->id;
  graph->instantiated.insert(memory.begin(), memory.end());
  return CUDA_SUCCESS;
}

CUresult set(CUgraphExec handle, CUgraphNode node, const CUgraphNodeParams& given) {
  if (is_made_once(given.type)) {
    const GraphLock lock;
    const GraphNode* const found = find_node(node);
    return found != nullptr && found->params.type() == given.type ? CUDA_ERROR_NOT_SUPPORTED
                                                                  : CUDA_ERROR_INVALID_VALUE;
  }
  {
    GraphExec* const exec = find_exec(handle);
    if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto id = reinterpret_cast<uint64_t>(node);
    if (const auto changed = change_kernel(*exec, id, given)) return *changed;
    if (!has_node(*exec, id, given.type)) return CUDA_ERROR_INVALID_VALUE;
  }
  NodeParams params;
  if (const CUresult result = NodeParams::take(given, &params); result != CUDA_SUCCESS)
    return result;
  const GraphLock lock;
  GraphExec* const exec = find_exec(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return set_node(*exec, reinterpret_cast<uint64_t>(node), params);
}

}  // namespace

CUresult manual_cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph,
                                            unsigned long long flags) {
  // Where to would be said by cuGraphInstantiateWithParams alone.
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0) return CUDA_ERROR_INVALID_VALUE;
  GraphOutcome outcome;
  return make(phGraphExec, hGraph, flags, &outcome);
}

CUresult manual_cuGraphInstantiateWithParams(CUgraphExec* phGraphExec, CUgraph hGraph,
                                             CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) {
  if (instantiateParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GraphOutcome outcome;
  CUresult result = make(phGraphExec, hGraph, instantiateParams->flags, &outcome);
  instantiateParams->hErrNode_out = outcome.error;
  instantiateParams->result_out = result == CUDA_SUCCESS
                                      ? CUDA_GRAPH_INSTANTIATE_SUCCESS
                                      : static_cast<CUgraphInstantiateResult>(outcome.found);
  if (result == CUDA_SUCCESS &&
      (instantiateParams->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0)
    result = manual_cuGraphUpload(*phGraphExec, instantiateParams->hUploadStream);
  return result;
}

CUresult manual_cuGraphInstantiate_v2(CUgraphExec* phGraphExec, CUgraph hGraph,
                                      CUgraphNode* phErrorNode, char* logBuffer,
                                      size_t bufferSize) {
  if (logBuffer != nullptr && bufferSize > 0) logBuffer[0] = '\0';
  GraphOutcome outcome;
  const CUresult result = make(phGraphExec, hGraph, 0, &outcome);
  if (phErrorNode != nullptr) *phErrorNode = outcome.error;
  return result;
}

CUresult manual_cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t* flags) {
  const GraphExec* const exec = find_exec(hGraphExec);
  if (exec == nullptr || flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = exec->flags;
  return CUDA_SUCCESS;
}

CUresult manual_cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                                     CUgraphExecUpdateResultInfo* resultInfo) {
  GraphLock lock;
  GraphExec* const exec = find_exec(hGraphExec);
  const Graph* const graph = find_graph(hGraph);
  if (exec == nullptr || graph == nullptr || graph->owner != nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  GraphOutcome outcome;
  const CUresult result = update(lock, *exec, *graph, &outcome);
  if (resultInfo == nullptr) return result;
  resultInfo->result = static_cast<CUgraphExecUpdateResult>(outcome.found);
  resultInfo->errorNode = outcome.error;
  resultInfo->errorFromNode = outcome.error_from;
  return result;
}

CUresult manual_cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph,
                                  CUgraphNode* hErrorNode_out,
                                  CUgraphExecUpdateResult* updateResult_out) {
  CUgraphExecUpdateResultInfo info{};
  const CUresult result = manual_cuGraphExecUpdate_v2(hGraphExec, hGraph, &info);
  // As natively: the result for another shape is that of newer versions.
  if (info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED)
    info.result = CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
  if (updateResult_out != nullptr) *updateResult_out = info.result;
  if (hErrorNode_out != nullptr) *hErrorNode_out = info.errorNode;
  return result;
}

CUresult manual_cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                         CUgraphNodeParams* nodeParams) {
  return nodeParams == nullptr ? CUDA_ERROR_INVALID_VALUE : set(hGraphExec, hNode, *nodeParams);
}

CUresult manual_cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode,
                                      unsigned int isEnabled) {
  GraphExec* const exec = find_exec(hGraphExec);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return enable_node(*exec, reinterpret_cast<uint64_t>(hNode), isEnabled != 0);
}

CUresult manual_cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode,
                                      unsigned int* isEnabled) {
  GraphExec* const exec = find_exec(hGraphExec);
  if (exec == nullptr || isEnabled == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return is_enabled(*exec, reinterpret_cast<uint64_t>(hNode), isEnabled);
}

CUresult manual_cuGraphUpload(CUgraphExec hGraph, CUstream hStream) {
  GraphExec* const exec = find_exec(hGraph, hStream);
  return exec == nullptr ? CUDA_ERROR_INVALID_VALUE : upload(*exec, hStream);
}

CUresult manual_cuGraphLaunch(CUgraphExec hGraph, CUstream hStream) {
  GraphExec* const exec = find_exec(hGraph, hStream);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (exec->records.load(std::memory_order_relaxed)) [[unlikely]] {
    for (CUevent const event : recorded_events(*exec)) capture::note_record(event);
  }
  return launch(*exec, hStream);
}

CUresult manual_cuGraphExecDestroy(CUgraphExec hGraphExec) {
  GraphExec* const exec = find_exec(hGraphExec);
  return exec == nullptr ? CUDA_ERROR_INVALID_VALUE : destroy(*exec);
}

}  // namespace fargpu::client

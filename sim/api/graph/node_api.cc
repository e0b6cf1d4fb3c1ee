// Nodes: the calls that add them.
#include "sim/api/graph/params.h"
#include "sim/graph/api.h"

using namespace fargpu::sim;

namespace {

CUresult add(CUgraphNode* out, CUgraph handle, const CUgraphNode* dependencies,
             const CUgraphEdgeData* data, size_t count, CUgraphNodeParams* params) {
  return with_graph(handle, [&](Graph& graph) -> CUresult {
    if (out == nullptr || params == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::vector<Dependency> list;
    CUresult result = resolve_dependencies(graph, params->type, dependencies, data, count, &list);
    OperationPtr operation;
    if (result == CUDA_SUCCESS) result = make_operation(*params, graph, &operation);
    if (result == CUDA_SUCCESS) result = check_memory(*operation, nullptr);
    if (result != CUDA_SUCCESS) return result;
    *out = handle_of(*add_node(graph, std::move(operation), std::move(list)));
    return CUDA_SUCCESS;
  });
}

// For the calls that add nodes of one type: fill(CUgraphNodeParams&) describes it.
template <typename Fill>
CUresult add_typed(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                   CUgraphNodeType type, const void* params, Fill&& fill) {
  if (params == nullptr) return add(out, graph, dependencies, nullptr, count, nullptr);
  CUgraphNodeParams all{};
  all.type = type;
  fill(all);
  return add(out, graph, dependencies, nullptr, count, &all);
}

}  // namespace

CUresult CUDAAPI cuGraphAddNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph,
                                   const CUgraphNode* dependencies,
                                   const CUgraphEdgeData* dependencyData, size_t numDependencies,
                                   CUgraphNodeParams* nodeParams) {
  return add(phGraphNode, hGraph, dependencies, dependencyData, numDependencies, nodeParams);
}

CUresult CUDAAPI cuGraphAddNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                const CUgraphNode* dependencies, size_t numDependencies,
                                CUgraphNodeParams* nodeParams) {
  return add(phGraphNode, hGraph, dependencies, nullptr, numDependencies, nodeParams);
}

CUresult CUDAAPI cuGraphAddKernelNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph,
                                         const CUgraphNode* dependencies, size_t numDependencies,
                                         const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return add_typed(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_KERNEL,
                   nodeParams, [&](auto& all) { all.kernel = to_v3(*nodeParams); });
}

CUresult CUDAAPI cuGraphAddKernelNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                      const CUgraphNode* dependencies, size_t numDependencies,
                                      const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  return add_typed(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_KERNEL,
                   nodeParams, [&](auto& all) { all.kernel = to_v3(*nodeParams); });
}

CUresult CUDAAPI cuGraphAddMemcpyNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                      const CUgraphNode* dependencies, size_t numDependencies,
                                      const CUDA_MEMCPY3D* copyParams, CUcontext ctx) {
  return add_typed(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_MEMCPY,
                   copyParams, [&](auto& all) {
                     all.memcpy = {0, 0, ctx, *copyParams};
                   });
}

CUresult CUDAAPI cuGraphAddMemsetNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                      const CUgraphNode* dependencies, size_t numDependencies,
                                      const CUDA_MEMSET_NODE_PARAMS* memsetParams, CUcontext ctx) {
  return add_typed(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_MEMSET,
                   memsetParams, [&](auto& all) { all.memset = to_v2(*memsetParams, ctx); });
}

CUresult CUDAAPI cuGraphAddHostNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                    const CUgraphNode* dependencies, size_t numDependencies,
                                    const CUDA_HOST_NODE_PARAMS* nodeParams) {
  return add_typed(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_HOST,
                   nodeParams, [&](auto& all) {
                     all.host = {nodeParams->fn, nodeParams->userData};
                   });
}

CUresult CUDAAPI cuGraphAddChildGraphNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                          const CUgraphNode* dependencies, size_t numDependencies,
                                          CUgraph childGraph) {
  return add_typed(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_GRAPH,
                   childGraph, [&](auto& all) { all.graph.graph = childGraph; });
}

CUresult CUDAAPI cuGraphAddEmptyNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                     const CUgraphNode* dependencies, size_t numDependencies) {
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_EMPTY;
  return add(phGraphNode, hGraph, dependencies, nullptr, numDependencies, &params);
}

CUresult CUDAAPI cuGraphAddEventRecordNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                           const CUgraphNode* dependencies, size_t numDependencies,
                                           CUevent event) {
  return add_typed(phGraphNode, hGraph, dependencies, numDependencies,
                   CU_GRAPH_NODE_TYPE_EVENT_RECORD, event,
                   [&](auto& all) { all.eventRecord.event = event; });
}

CUresult CUDAAPI cuGraphAddEventWaitNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                         const CUgraphNode* dependencies, size_t numDependencies,
                                         CUevent event) {
  return add_typed(phGraphNode, hGraph, dependencies, numDependencies,
                   CU_GRAPH_NODE_TYPE_WAIT_EVENT, event,
                   [&](auto& all) { all.eventWait.event = event; });
}

CUresult CUDAAPI cuGraphAddBatchMemOpNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                          const CUgraphNode* dependencies, size_t numDependencies,
                                          const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  return add_typed(phGraphNode, hGraph, dependencies, numDependencies,
                   CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, nodeParams,
                   [&](auto& all) { all.memOp = to_v2(*nodeParams); });
}

CUresult CUDAAPI cuGraphAddMemAllocNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                        const CUgraphNode* dependencies, size_t numDependencies,
                                        CUDA_MEM_ALLOC_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr)
    return add(phGraphNode, hGraph, dependencies, nullptr, numDependencies, nullptr);
  CUgraphNodeParams all{};
  all.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  all.alloc = to_v2(*nodeParams);
  const CUresult result = add(phGraphNode, hGraph, dependencies, nullptr, numDependencies, &all);
  if (result == CUDA_SUCCESS) nodeParams->dptr = all.alloc.dptr;
  return result;
}

CUresult CUDAAPI cuGraphAddMemFreeNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                       const CUgraphNode* dependencies, size_t numDependencies,
                                       CUdeviceptr dptr) {
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
  params.free.dptr = dptr;
  return add(phGraphNode, hGraph, dependencies, nullptr, numDependencies, &params);
}

CUresult CUDAAPI cuGraphAddExternalSemaphoresSignalNode(CUgraphNode*, CUgraph, const CUgraphNode*,
                                                        size_t,
                                                        const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS*) {
  return with_graphs([] { return CUDA_ERROR_NOT_SUPPORTED; });
}

CUresult CUDAAPI cuGraphAddExternalSemaphoresWaitNode(CUgraphNode*, CUgraph, const CUgraphNode*,
                                                      size_t,
                                                      const CUDA_EXT_SEM_WAIT_NODE_PARAMS*) {
  return with_graphs([] { return CUDA_ERROR_NOT_SUPPORTED; });
}

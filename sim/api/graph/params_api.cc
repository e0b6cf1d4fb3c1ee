// Parameters of nodes: asking for them, and changing them in a graph or in an executable graph.
#include "sim/api/graph/params.h"
#include "sim/graph/api.h"
#include "sim/graph/kernel_node.h"

using namespace fargpu::sim;

namespace {

// take(const CUgraphNodeParams&), for a node of this type.
template <typename Take>
CUresult get(CUgraphNode handle, CUgraphNodeType type, const void* out, Take&& take) {
  return with_node(handle, [&](Node& node) -> CUresult {
    if (out == nullptr || node.operation->type() != type) return CUDA_ERROR_INVALID_VALUE;
    CUgraphNodeParams params;
    node.operation->params(&params);
    if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
      if (!node.told) {
        node.told = std::make_shared<ToldParameters>();
        static_cast<const KernelOperation&>(*node.operation).tell(*node.told);
      }
      node.told->give(&params.kernel);
    }
    take(params);
    return CUDA_SUCCESS;
  });
}

// Nodes whose parameters stay as they were made.
bool is_made_once(CUgraphNodeType type) {
  return type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
         type == CU_GRAPH_NODE_TYPE_CONDITIONAL;
}

// The operation of the same type that `params` describe.
CUresult make_next(const Node& node, CUgraphNodeParams& params, OperationPtr* next) {
  if (params.type != node.operation->type()) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams had{};
  node.operation->params(&had);
  const bool moved = params.type == CU_GRAPH_NODE_TYPE_GRAPH &&
                     had.graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
  const auto child =
      params.type == CU_GRAPH_NODE_TYPE_GRAPH ? find_graph(params.graph.graph) : nullptr;
  const bool embedded = child && child->embedded;
  return is_made_once(params.type) || moved || embedded ? CUDA_ERROR_NOT_SUPPORTED
                                                        : make_operation(params, *node.graph, next);
}

// A kernel node keeps its attributes.
CUresult keep_attributes(const Operation& was, OperationPtr* next) {
  if (was.type() != CU_GRAPH_NODE_TYPE_KERNEL) return CUDA_SUCCESS;
  const auto& kernel = static_cast<const KernelOperation&>(was);
  if (kernel.attributes().empty() && kernel.device_node() == nullptr) return CUDA_SUCCESS;
  const OperationPtr made = *next;
  return static_cast<const KernelOperation&>(*made).with_settings_of(kernel, next);
}

CUresult set(CUgraphNode handle, CUgraphNodeParams* params) {
  return with_node(handle, [&](Node& node) -> CUresult {
    if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
    OperationPtr next;
    CUresult result = make_next(node, *params, &next);
    if (result == CUDA_SUCCESS) result = keep_attributes(*node.operation, &next);
    if (result == CUDA_SUCCESS) result = check_memory(*next, &node);
    if (result != CUDA_SUCCESS) return result;
    node.operation = std::move(next);
    if (node.told) static_cast<const KernelOperation&>(*node.operation).tell(*node.told);
    return CUDA_SUCCESS;
  });
}

CUresult set_in_exec(CUgraphExec exec_handle, CUgraphNode handle, CUgraphNodeParams* params) {
  if (params != nullptr && is_made_once(params->type)) {
    return with_node(handle, [params](Node& node) -> CUresult {
      return node.operation->type() == params->type ? CUDA_ERROR_NOT_SUPPORTED
                                                    : CUDA_ERROR_INVALID_VALUE;
    });
  }
  return with_exec_node(exec_handle, handle, [&](Exec& exec, Node& own, Node&) -> CUresult {
    if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (params->type != own.operation->type()) return CUDA_ERROR_INVALID_VALUE;
    if (params->type == CU_GRAPH_NODE_TYPE_GRAPH) {
      const auto child = find_graph(params->graph.graph);
      return child ? exec.update_child(own, *child) : CUDA_ERROR_INVALID_VALUE;
    }
    OperationPtr next;
    CUresult result = make_next(own, *params, &next);
    if (result == CUDA_SUCCESS) result = keep_attributes(*own.operation, &next);
    return result == CUDA_SUCCESS ? exec.set(own, std::move(next)) : result;
  });
}

// For the calls about nodes of one type: fill(CUgraphNodeParams&) describes it, apply takes it.
template <typename Fill, typename Apply>
CUresult typed(CUgraphNodeType type, const void* params, Fill&& fill, Apply&& apply) {
  if (params == nullptr) return apply(nullptr);
  CUgraphNodeParams all{};
  all.type = type;
  fill(all);
  return apply(&all);
}

auto on(CUgraphNode node) {
  return [node](CUgraphNodeParams* params) { return set(node, params); };
}
auto on(CUgraphExec exec, CUgraphNode node) {
  return [exec, node](CUgraphNodeParams* params) { return set_in_exec(exec, node, params); };
}

template <typename Params, typename Apply>
CUresult set_kernel(const Params* params, Apply&& apply) {
  return typed(
      CU_GRAPH_NODE_TYPE_KERNEL, params, [&](auto& all) { all.kernel = to_v3(*params); }, apply);
}
template <typename Apply>
CUresult set_host(const CUDA_HOST_NODE_PARAMS* params, Apply&& apply) {
  return typed(
      CU_GRAPH_NODE_TYPE_HOST, params,
      [&](auto& all) {
        all.host = {params->fn, params->userData};
      },
      apply);
}
template <typename Apply>
CUresult set_batch(const CUDA_BATCH_MEM_OP_NODE_PARAMS* params, Apply&& apply) {
  return typed(
      CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, params, [&](auto& all) { all.memOp = to_v2(*params); },
      apply);
}
template <typename Apply>
CUresult set_event(CUgraphNodeType type, CUevent event, Apply&& apply) {
  return typed(
      type, event,
      [&](auto& all) {
        (type == CU_GRAPH_NODE_TYPE_WAIT_EVENT ? all.eventWait.event : all.eventRecord.event) =
            event;
      },
      apply);
}

// The context of a memcpy or memset node; nullptr: it is of another type.
CUcontext context_of(CUgraphNode handle) {
  CUgraphNodeParams params{};
  (void)with_node(handle, [&](Node& node) -> CUresult {
    node.operation->params(&params);
    return CUDA_SUCCESS;
  });
  if (params.type == CU_GRAPH_NODE_TYPE_MEMCPY) return params.memcpy.copyCtx;
  return params.type == CU_GRAPH_NODE_TYPE_MEMSET ? params.memset.ctx : nullptr;
}

}  // namespace

CUresult CUDAAPI cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams* nodeParams) {
  return set(hNode, nodeParams);
}
CUresult CUDAAPI cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                          CUgraphNodeParams* nodeParams) {
  return set_in_exec(hGraphExec, hNode, nodeParams);
}

CUresult CUDAAPI cuGraphKernelNodeGetParams_v2(CUgraphNode hNode,
                                               CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return get(hNode, CU_GRAPH_NODE_TYPE_KERNEL, nodeParams,
             [&](const auto& all) { std::memcpy(nodeParams, &all.kernel, sizeof(*nodeParams)); });
}
CUresult CUDAAPI cuGraphKernelNodeGetParams(CUgraphNode hNode,
                                            CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  return get(hNode, CU_GRAPH_NODE_TYPE_KERNEL, nodeParams, [&](const auto& all) {
    std::memcpy(nodeParams, &all.kernel, sizeof(*nodeParams));
    if (nodeParams->func == nullptr)
      nodeParams->func = reinterpret_cast<CUfunction>(all.kernel.kern);
  });
}
CUresult CUDAAPI cuGraphKernelNodeSetParams_v2(CUgraphNode hNode,
                                               const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return set_kernel(nodeParams, on(hNode));
}
CUresult CUDAAPI cuGraphKernelNodeSetParams(CUgraphNode hNode,
                                            const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  return set_kernel(nodeParams, on(hNode));
}
CUresult CUDAAPI cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                   const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return set_kernel(nodeParams, on(hGraphExec, hNode));
}
CUresult CUDAAPI cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  return set_kernel(nodeParams, on(hGraphExec, hNode));
}

CUresult CUDAAPI cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D* nodeParams) {
  return get(hNode, CU_GRAPH_NODE_TYPE_MEMCPY, nodeParams,
             [&](const auto& all) { *nodeParams = all.memcpy.copyParams; });
}
CUresult CUDAAPI cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D* nodeParams) {
  const CUcontext context = context_of(hNode);
  return typed(
      CU_GRAPH_NODE_TYPE_MEMCPY, nodeParams,
      [&](auto& all) {
        all.memcpy = {0, 0, context, *nodeParams};
      },
      on(hNode));
}
CUresult CUDAAPI cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                const CUDA_MEMCPY3D* copyParams, CUcontext ctx) {
  return typed(
      CU_GRAPH_NODE_TYPE_MEMCPY, copyParams,
      [&](auto& all) {
        all.memcpy = {0, 0, ctx, *copyParams};
      },
      on(hGraphExec, hNode));
}

CUresult CUDAAPI cuGraphMemsetNodeGetParams(CUgraphNode hNode,
                                            CUDA_MEMSET_NODE_PARAMS* nodeParams) {
  return get(hNode, CU_GRAPH_NODE_TYPE_MEMSET, nodeParams,
             [&](const auto& all) { std::memcpy(nodeParams, &all.memset, sizeof(*nodeParams)); });
}
CUresult CUDAAPI cuGraphMemsetNodeSetParams(CUgraphNode hNode,
                                            const CUDA_MEMSET_NODE_PARAMS* nodeParams) {
  const CUcontext context = context_of(hNode);
  return typed(
      CU_GRAPH_NODE_TYPE_MEMSET, nodeParams,
      [&](auto& all) { all.memset = to_v2(*nodeParams, context); }, on(hNode));
}
CUresult CUDAAPI cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                const CUDA_MEMSET_NODE_PARAMS* memsetParams,
                                                CUcontext ctx) {
  return typed(
      CU_GRAPH_NODE_TYPE_MEMSET, memsetParams,
      [&](auto& all) { all.memset = to_v2(*memsetParams, ctx); }, on(hGraphExec, hNode));
}

CUresult CUDAAPI cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS* nodeParams) {
  return get(hNode, CU_GRAPH_NODE_TYPE_HOST, nodeParams, [&](const auto& all) {
    *nodeParams = {all.host.fn, all.host.userData};
  });
}
CUresult CUDAAPI cuGraphHostNodeSetParams(CUgraphNode hNode,
                                          const CUDA_HOST_NODE_PARAMS* nodeParams) {
  return set_host(nodeParams, on(hNode));
}
CUresult CUDAAPI cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                              const CUDA_HOST_NODE_PARAMS* nodeParams) {
  return set_host(nodeParams, on(hGraphExec, hNode));
}

CUresult CUDAAPI cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph* phGraph) {
  return get(hNode, CU_GRAPH_NODE_TYPE_GRAPH, phGraph,
             [&](const auto& all) { *phGraph = all.graph.graph; });
}
CUresult CUDAAPI cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                    CUgraph childGraph) {
  return typed(
      CU_GRAPH_NODE_TYPE_GRAPH, childGraph, [&](auto& all) { all.graph.graph = childGraph; },
      on(hGraphExec, hNode));
}

CUresult CUDAAPI cuGraphEventRecordNodeGetEvent(CUgraphNode hNode, CUevent* event_out) {
  return get(hNode, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event_out,
             [&](const auto& all) { *event_out = all.eventRecord.event; });
}
CUresult CUDAAPI cuGraphEventRecordNodeSetEvent(CUgraphNode hNode, CUevent event) {
  return set_event(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event, on(hNode));
}
CUresult CUDAAPI cuGraphExecEventRecordNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                    CUevent event) {
  return set_event(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event, on(hGraphExec, hNode));
}
CUresult CUDAAPI cuGraphEventWaitNodeGetEvent(CUgraphNode hNode, CUevent* event_out) {
  return get(hNode, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event_out,
             [&](const auto& all) { *event_out = all.eventWait.event; });
}
CUresult CUDAAPI cuGraphEventWaitNodeSetEvent(CUgraphNode hNode, CUevent event) {
  return set_event(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event, on(hNode));
}
CUresult CUDAAPI cuGraphExecEventWaitNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                  CUevent event) {
  return set_event(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event, on(hGraphExec, hNode));
}

CUresult CUDAAPI cuGraphBatchMemOpNodeGetParams(CUgraphNode hNode,
                                                CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams_out) {
  return get(hNode, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, nodeParams_out, [&](const auto& all) {
    *nodeParams_out = {all.memOp.ctx, all.memOp.count, all.memOp.paramArray, all.memOp.flags};
  });
}
CUresult CUDAAPI cuGraphBatchMemOpNodeSetParams(CUgraphNode hNode,
                                                const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  return set_batch(nodeParams, on(hNode));
}
CUresult CUDAAPI cuGraphExecBatchMemOpNodeSetParams(
    CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  return set_batch(nodeParams, on(hGraphExec, hNode));
}

CUresult CUDAAPI cuGraphMemAllocNodeGetParams(CUgraphNode hNode,
                                              CUDA_MEM_ALLOC_NODE_PARAMS* params_out) {
  return get(hNode, CU_GRAPH_NODE_TYPE_MEM_ALLOC, params_out,
             [&](const auto& all) { std::memcpy(params_out, &all.alloc, sizeof(*params_out)); });
}
CUresult CUDAAPI cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr* dptr_out) {
  return get(hNode, CU_GRAPH_NODE_TYPE_MEM_FREE, dptr_out,
             [&](const auto& all) { *dptr_out = all.free.dptr; });
}

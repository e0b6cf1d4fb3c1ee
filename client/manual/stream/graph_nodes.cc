// Nodes of graphs. Of the typed functions those that only give parameters are rows of the
// description (via: cuGraphAddNode_v2 and others).
#include "client/graph/graph.h"
#include "client/graph/typed_params.h"
#include "client/process/process.h"
#include "client/process/tables.h"
#include "generated/client/manual.h"

namespace fargpu::client {
namespace {

// The copy that a child node gets; *copy stays null for other nodes, and for what is moved.
CUresult copy_child(const Graph& graph, const NodeParams& params, Graph** copy) {
  if (params.type() != CU_GRAPH_NODE_TYPE_GRAPH) return CUDA_SUCCESS;
  const CUDA_CHILD_GRAPH_NODE_PARAMS& given = params.get().graph;
  const Graph* const child = find_graph(given.graph);
  if (child == nullptr || child == &graph) return CUDA_ERROR_INVALID_VALUE;
  if (given.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE) return clone_graph(*child, copy);
  return given.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE ? CUDA_SUCCESS
                                                                : CUDA_ERROR_INVALID_VALUE;
}

// What a node needs besides its parameters. `copy`: of a child; null: it is moved.
CUresult complete(GraphNode& node, Graph* copy) {
  switch (node.params.type()) {
    case CU_GRAPH_NODE_TYPE_GRAPH: {
      if (copy == nullptr) return move_child(node, *find_graph(node.params.get().graph.graph));
      put_child(node, *copy);
      return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return allocate(node);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return release(node);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return take_condition(node);
    default:
      return CUDA_SUCCESS;
  }
}

CUresult add(CUgraphNode* out, CUgraph handle, const CUgraphNode* dependencies,
             const CUgraphEdgeData* edges, size_t count, const CUgraphNodeParams& given,
             CUgraphNodeParams* made = nullptr) {
  NodeParams params;
  {
    const GraphLock lock;
    if (out == nullptr || find_graph(handle) == nullptr ||
        (count != 0 && dependencies == nullptr) ||
        (given.type == CU_GRAPH_NODE_TYPE_GRAPH && find_graph(given.graph.graph) == nullptr))
      return CUDA_ERROR_INVALID_VALUE;
  }
  // May ask the server.
  if (const CUresult result = NodeParams::take(given, &params); result != CUDA_SUCCESS)
    return result;
  const GraphLock lock;
  Graph* const graph = find_graph(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GraphNode* node = nullptr;
  CUresult result = check_memory(params, nullptr);
  if (result != CUDA_SUCCESS) return result;
  // Before the node is there: the graph may be inside of the one that is copied.
  Graph* copy = nullptr;
  result = copy_child(*graph, params, &copy);
  if (result != CUDA_SUCCESS) return result;
  result = add_node(*graph, {dependencies, count}, edges, std::move(params), &node);
  if (result != CUDA_SUCCESS) {
    if (copy != nullptr) end_graph(*copy);
    return result;
  }
  result = complete(*node, copy);
  if (result != CUDA_SUCCESS) {
    end_node(*node);
    return result;
  }
  *out = node->handle();
  // What the caller learns of it.
  if (made != nullptr && given.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
    made->alloc.dptr = node->params.get().alloc.dptr;
  if (made != nullptr && given.type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
    made->conditional.phGraph_out = node->params.get().conditional.phGraph_out;
  return CUDA_SUCCESS;
}

template <typename Params>
void get_kernel(const CUDA_KERNEL_NODE_PARAMS_v3& kernel, Params* out) {
  *out = {};
  out->func = kernel.func;
  out->gridDimX = kernel.gridDimX;
  out->gridDimY = kernel.gridDimY;
  out->gridDimZ = kernel.gridDimZ;
  out->blockDimX = kernel.blockDimX;
  out->blockDimY = kernel.blockDimY;
  out->blockDimZ = kernel.blockDimZ;
  out->sharedMemBytes = kernel.sharedMemBytes;
  out->kernelParams = kernel.kernelParams;
  out->extra = kernel.extra;
  if constexpr (requires { out->kern; }) {
    out->kern = kernel.kern;
    out->ctx = kernel.ctx;
  }
}

// `get(params)` of a live node of the type.
template <typename Get>
CUresult read(CUgraphNode handle, CUgraphNodeType type, const void* out, Get&& get) {
  const GraphLock lock;
  const GraphNode* const node = find_node(handle);
  if (out == nullptr || node == nullptr || node->params.type() != type)
    return CUDA_ERROR_INVALID_VALUE;
  get(node->params.get());
  return CUDA_SUCCESS;
}

// Where a copy or a fill runs.
CUresult read_context(CUgraphNode handle, CUgraphNodeType type, CUcontext* context) {
  return read(handle, type, context, [&](const CUgraphNodeParams& params) {
    *context = type == CU_GRAPH_NODE_TYPE_MEMCPY ? params.memcpy.copyCtx : params.memset.ctx;
  });
}

// New parameters of the same kind.
CUresult write(CUgraphNode handle, const CUgraphNodeParams& given) {
  {
    const GraphLock lock;
    const GraphNode* const node = find_node(handle);
    if (node == nullptr || node->params.type() != given.type) return CUDA_ERROR_INVALID_VALUE;
    if (is_made_once(given.type) || has_moved_child(*node)) return CUDA_ERROR_NOT_SUPPORTED;
  }
  NodeParams params;
  if (const CUresult result = NodeParams::take(given, &params); result != CUDA_SUCCESS)
    return result;
  const GraphLock lock;
  GraphNode* const node = find_node(handle);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (given.type == CU_GRAPH_NODE_TYPE_GRAPH) {
    const Graph* const child = find_graph(given.graph.graph);
    if (child == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return child->owner != nullptr ? CUDA_ERROR_NOT_SUPPORTED : give_child(*node, *child);
  }
  if (const CUresult result = check_memory(params, node); result != CUDA_SUCCESS) return result;
  params.copy_attributes(node->params);
  node->params.become(std::move(params));
  return CUDA_SUCCESS;
}

}  // namespace

CUresult manual_cuGraphAddNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph,
                                  const CUgraphNode* dependencies,
                                  const CUgraphEdgeData* dependencyData, size_t numDependencies,
                                  CUgraphNodeParams* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add(phGraphNode, hGraph, dependencies, dependencyData, numDependencies, *nodeParams,
             nodeParams);
}

CUresult manual_cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams* nodeParams) {
  return nodeParams == nullptr ? CUDA_ERROR_INVALID_VALUE : write(hNode, *nodeParams);
}

CUresult manual_cuGraphKernelNodeGetParams_v2(CUgraphNode hNode,
                                              CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return read(hNode, CU_GRAPH_NODE_TYPE_KERNEL, nodeParams,
              [&](const CUgraphNodeParams& params) { get_kernel(params.kernel, nodeParams); });
}

CUresult manual_cuGraphKernelNodeGetParams(CUgraphNode hNode,
                                           CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  return read(hNode, CU_GRAPH_NODE_TYPE_KERNEL, nodeParams,
              [&](const CUgraphNodeParams& params) { get_kernel(params.kernel, nodeParams); });
}

CUresult manual_cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D* nodeParams) {
  return read(hNode, CU_GRAPH_NODE_TYPE_MEMCPY, nodeParams,
              [&](const CUgraphNodeParams& params) { *nodeParams = params.memcpy.copyParams; });
}

CUresult manual_cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUcontext context = nullptr;
  const CUresult result = read_context(hNode, CU_GRAPH_NODE_TYPE_MEMCPY, &context);
  return result == CUDA_SUCCESS ? write(hNode, copy_params(*nodeParams, context)) : result;
}

CUresult manual_cuGraphMemsetNodeGetParams(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS* nodeParams) {
  return read(hNode, CU_GRAPH_NODE_TYPE_MEMSET, nodeParams, [&](const CUgraphNodeParams& params) {
    const CUDA_MEMSET_NODE_PARAMS_v2& fill = params.memset;
    *nodeParams = {fill.dst, fill.pitch, fill.value, fill.elementSize, fill.width, fill.height};
  });
}

CUresult manual_cuGraphMemsetNodeSetParams(CUgraphNode hNode,
                                           const CUDA_MEMSET_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUcontext context = nullptr;
  const CUresult result = read_context(hNode, CU_GRAPH_NODE_TYPE_MEMSET, &context);
  return result == CUDA_SUCCESS ? write(hNode, fill_params(*nodeParams, context)) : result;
}

CUresult manual_cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS* nodeParams) {
  return read(hNode, CU_GRAPH_NODE_TYPE_HOST, nodeParams, [&](const CUgraphNodeParams& params) {
    *nodeParams = {params.host.fn, params.host.userData};
  });
}

CUresult manual_cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph* phGraph) {
  return read(hNode, CU_GRAPH_NODE_TYPE_GRAPH, phGraph,
              [&](const CUgraphNodeParams& params) { *phGraph = params.graph.graph; });
}

CUresult manual_cuGraphEventRecordNodeGetEvent(CUgraphNode hNode, CUevent* event_out) {
  return read(hNode, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event_out,
              [&](const CUgraphNodeParams& params) { *event_out = params.eventRecord.event; });
}

CUresult manual_cuGraphEventWaitNodeGetEvent(CUgraphNode hNode, CUevent* event_out) {
  return read(hNode, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event_out,
              [&](const CUgraphNodeParams& params) { *event_out = params.eventWait.event; });
}

CUresult manual_cuGraphBatchMemOpNodeGetParams(CUgraphNode hNode,
                                               CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams_out) {
  return read(hNode, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, nodeParams_out,
              [&](const CUgraphNodeParams& params) {
                *nodeParams_out = {params.memOp.ctx, params.memOp.count, params.memOp.paramArray,
                                   params.memOp.flags};
              });
}

CUresult manual_cuGraphAddMemAllocNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                       const CUgraphNode* dependencies, size_t numDependencies,
                                       CUDA_MEM_ALLOC_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_MEM_ALLOC);
  params.alloc.poolProps = nodeParams->poolProps;
  params.alloc.accessDescs = nodeParams->accessDescs;
  params.alloc.accessDescCount = nodeParams->accessDescCount;
  params.alloc.bytesize = nodeParams->bytesize;
  const CUresult result =
      add(phGraphNode, hGraph, dependencies, nullptr, numDependencies, params, &params);
  if (result == CUDA_SUCCESS) nodeParams->dptr = params.alloc.dptr;
  return result;
}

CUresult manual_cuGraphMemAllocNodeGetParams(CUgraphNode hNode,
                                             CUDA_MEM_ALLOC_NODE_PARAMS* params_out) {
  return read(hNode, CU_GRAPH_NODE_TYPE_MEM_ALLOC, params_out,
              [&](const CUgraphNodeParams& params) {
                params_out->poolProps = params.alloc.poolProps;
                params_out->accessDescs = params.alloc.accessDescs;
                params_out->accessDescCount = params.alloc.accessDescCount;
                params_out->bytesize = params.alloc.bytesize;
                params_out->dptr = params.alloc.dptr;
              });
}

CUresult manual_cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr* dptr_out) {
  return read(hNode, CU_GRAPH_NODE_TYPE_MEM_FREE, dptr_out,
              [&](const CUgraphNodeParams& params) { *dptr_out = params.free.dptr; });
}

CUresult manual_cuGraphConditionalHandleCreate(CUgraphConditionalHandle* pHandle_out,
                                               CUgraph hGraph, CUcontext ctx,
                                               unsigned int defaultLaunchValue,
                                               unsigned int flags) {
  const GraphLock lock;
  Graph* const graph = find_graph(hGraph);
  if (pHandle_out == nullptr || graph == nullptr ||
      (flags & ~static_cast<unsigned>(CU_GRAPH_COND_ASSIGN_DEFAULT)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  Context* const context = home_of(Process::get().tables()->contexts.find(ctx));
  if (context == nullptr || !context->usable()) return CUDA_ERROR_INVALID_CONTEXT;
  return make_condition(*graph, *context, defaultLaunchValue, flags, pHandle_out);
}

CUresult manual_cuGraphKernelNodeGetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                              CUkernelNodeAttrValue* value_out) {
  const GraphLock lock;
  const GraphNode* const node = find_node(hNode);
  if (node == nullptr || value_out == nullptr || node->params.type() != CU_GRAPH_NODE_TYPE_KERNEL)
    return CUDA_ERROR_INVALID_VALUE;
  return node->params.get_attribute(attr, value_out);
}

CUresult manual_cuGraphKernelNodeSetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                              const CUkernelNodeAttrValue* value) {
  return set_kernel_attribute(hNode, attr, value);
}

CUresult manual_cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src) {
  const GraphLock lock;
  GraphNode* const to = find_node(dst);
  const GraphNode* const from = find_node(src);
  if (to == nullptr || from == nullptr || to->params.type() != CU_GRAPH_NODE_TYPE_KERNEL ||
      from->params.type() != CU_GRAPH_NODE_TYPE_KERNEL)
    return CUDA_ERROR_INVALID_VALUE;
  if (to->params.device_node() != 0 || from->params.device_node() != 0)
    return CUDA_ERROR_NOT_SUPPORTED;
  to->params.copy_attributes(from->params);
  return CUDA_SUCCESS;
}

}  // namespace fargpu::client

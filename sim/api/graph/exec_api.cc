// Executable graphs: instantiation, launches, updates.
#include <algorithm>

#include "sim/graph/api.h"
#include "sim/graph/body_nodes.h"
#include "sim/graph/kernel_node.h"
#include "sim/graph/stream_capture.h"
#include "sim/work/conditional_value.h"

using namespace fargpu::sim;

namespace {

constexpr uint64_t kFlags =
    CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
    CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

struct Outcome {
  CUgraphInstantiateResult result = CUDA_GRAPH_INSTANTIATE_ERROR;
  CUgraphNode node = nullptr;
};

// By a node of the graph, or of what is embedded in it.
bool uses(const Graph& graph, const ConditionalValue& value) {
  return std::ranges::any_of(graph.nodes, [&value](const auto& node) {
    const Operation& operation = *node->operation;
    if (operation.type() == CU_GRAPH_NODE_TYPE_CONDITIONAL &&
        &static_cast<const Conditional&>(operation).value() == &value)
      return true;
    return std::ranges::any_of(operation.bodies(),
                               [&value](const auto& body) { return uses(*body, value); });
  });
}

// A conditional handle that nothing uses.
bool unused_handle(const Graph& graph) {
  return std::ranges::any_of(graph.conditionals,
                             [&graph](const auto& value) { return !uses(graph, *value); });
}

// What a graph that kernels launch may not hold.
class DeviceLaunchCheck {
 public:
  CUresult check(const Graph& graph, Outcome* outcome) {
    if (const CUresult result = visit(graph, outcome); result != CUDA_SUCCESS) return result;
    return context_ != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }

  // A copy whose ends a device reaches.
  static bool is_reachable(const CUgraphNodeParams& params) {
    const CUDA_MEMCPY3D& copy = params.memcpy.copyParams;
    return is_known(copy.srcMemoryType, copy.srcHost, copy.srcDevice) &&
           is_known(copy.dstMemoryType, copy.dstHost, copy.dstDevice);
  }

 private:
  CUresult visit(const Graph& graph, Outcome* outcome) {
    for (const auto& node : graph.nodes) {
      const Operation& operation = *node->operation;
      for (const auto& body : operation.bodies())
        if (const CUresult result = visit(*body, outcome); result != CUDA_SUCCESS) return result;
      CUgraphNodeParams params;
      operation.params(&params);
      const CUgraphInstantiateResult result = look_at(params);
      if (result == CUDA_GRAPH_INSTANTIATE_SUCCESS) continue;
      *outcome = {result, handle_of(*node)};
      return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
  }

  CUgraphInstantiateResult look_at(const CUgraphNodeParams& params) {
    switch (params.type) {
      case CU_GRAPH_NODE_TYPE_KERNEL:
        return in(params.kernel.ctx);
      case CU_GRAPH_NODE_TYPE_MEMCPY: {
        const CUDA_MEMCPY3D& copy = params.memcpy.copyParams;
        if (copy.srcMemoryType == CU_MEMORYTYPE_ARRAY || copy.dstMemoryType == CU_MEMORYTYPE_ARRAY)
          return CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
        return is_reachable(params) ? in(params.memcpy.copyCtx)
                                    : CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED;
      }
      case CU_GRAPH_NODE_TYPE_MEMSET:
        return in(params.memset.ctx);
      case CU_GRAPH_NODE_TYPE_GRAPH:
        return CUDA_GRAPH_INSTANTIATE_SUCCESS;
      default:
        return CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
    }
  }

  CUgraphInstantiateResult in(CUcontext context) {
    if (context_ == nullptr) context_ = context;
    return context_ == context ? CUDA_GRAPH_INSTANTIATE_SUCCESS
                               : CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED;
  }

  // Memory of a device or pinned memory.
  static bool is_known(CUmemorytype type, const void* host, CUdeviceptr device) {
    if (type == CU_MEMORYTYPE_ARRAY) return true;
    const uint64_t address =
        type == CU_MEMORYTYPE_HOST ? reinterpret_cast<uint64_t>(host) : uint64_t{device};
    return Driver::get().allocations().find(address).has_value();
  }

  CUcontext context_ = nullptr;  // of the nodes so far
};

// What bodies of conditions take, but no executable graph runs.
class BodyCheck {
 public:
  static CUresult check(const Graph& graph, Outcome* outcome, bool in_body = false) {
    for (const auto& node : graph.nodes) {
      const Operation& operation = *node->operation;
      const CUgraphInstantiateResult result =
          in_body ? look_at(operation) : CUDA_GRAPH_INSTANTIATE_SUCCESS;
      if (result != CUDA_GRAPH_INSTANTIATE_SUCCESS) {
        *outcome = {result, handle_of(*node)};
        return CUDA_ERROR_INVALID_VALUE;
      }
      const bool inside = in_body || operation.type() == CU_GRAPH_NODE_TYPE_CONDITIONAL;
      for (const auto& body : operation.bodies())
        if (CUresult found = check(*body, outcome, inside); found != CUDA_SUCCESS) return found;
    }
    return CUDA_SUCCESS;
  }

 private:
  static CUgraphInstantiateResult look_at(const Operation& operation) {
    CUgraphNodeParams params;
    switch (operation.type()) {
      case CU_GRAPH_NODE_TYPE_KERNEL:
      case CU_GRAPH_NODE_TYPE_MEMSET:
      case CU_GRAPH_NODE_TYPE_EMPTY:
      case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      case CU_GRAPH_NODE_TYPE_GRAPH:
        return CUDA_GRAPH_INSTANTIATE_SUCCESS;
      case CU_GRAPH_NODE_TYPE_MEMCPY:
        operation.params(&params);
        return DeviceLaunchCheck::is_reachable(params)
                   ? CUDA_GRAPH_INSTANTIATE_SUCCESS
                   : CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED;
      default:
        return CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
    }
  }
};

CUresult instantiate(CUgraphExec* out, Graph& graph, uint64_t flags, Outcome* outcome) {
  constexpr uint64_t kAutoFree = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
  constexpr uint64_t kDevice = CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
  if (graph.moved) return CUDA_ERROR_NOT_SUPPORTED;
  if (out == nullptr || (flags & ~kFlags) != 0 || graph.embedded ||
      ((flags & kAutoFree) != 0 && (flags & kDevice) != 0)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::shared_ptr<Context> context;
  if (CUresult result = current_context(&context); result != CUDA_SUCCESS) return result;
  Registry& registry = Driver::get().registry();
  // Of memory nodes only what was made with them counts.
  const bool with_memory = has_memory_nodes(graph);
  const bool single = has_type(graph, CU_GRAPH_NODE_TYPE_CONDITIONAL) || has_device_nodes(graph);
  if ((single && registry.find<Exec>(graph.executable) != nullptr) ||
      (with_memory && registry.find<Exec>(graph.executable_with_memory) != nullptr))
    return CUDA_ERROR_NOT_SUPPORTED;
  if (unused_handle(graph)) {
    outcome->result = CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED;
    return CUDA_ERROR_INVALID_VALUE;
  }
  if ((flags & kDevice) != 0) {
    if (CUresult result = DeviceLaunchCheck().check(graph, outcome); result != CUDA_SUCCESS)
      return result;
  }
  if (CUresult result = BodyCheck().check(graph, outcome); result != CUDA_SUCCESS) return result;
  Node* cycle = nullptr;
  auto shape = copy_graph(graph, false);
  auto plan = make_plan(*shape, &cycle);
  if (!plan) {
    *outcome = {CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE, to_handle<CUgraphNode>(cycle->original)};
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto exec = std::make_shared<Exec>(std::move(shape), std::move(plan),
                                           flags & ~uint64_t{CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD});
  for (const auto& node : graph.nodes)
    if (node->operation->type() == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
      node->operation->block()->instantiated = true;
  graph.executable = registry.add(exec, 0);
  if (with_memory) graph.executable_with_memory = graph.executable;
  exec->set_handle(graph.executable);
  *out = to_handle<CUgraphExec>(graph.executable);
  outcome->result = CUDA_GRAPH_INSTANTIATE_SUCCESS;
  return CUDA_SUCCESS;
}

// For calls about an executable graph in a stream: body(Exec&, Context&, stream). The graph mutex
// is not held: the call may not be in the way of others for long.
template <typename Body>
CUresult in_stream(CUgraphExec handle, CUstream stream, Body&& body) {
  return with_stream(stream, [&](Context& context, const std::shared_ptr<Stream>& found) {
    const auto exec = Driver::get().registry().find<Exec>(handle);
    return exec ? body(*exec, context, found) : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult instantiate_old(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                         char* logBuffer, size_t bufferSize) {
  if (phErrorNode != nullptr) *phErrorNode = nullptr;
  if (logBuffer != nullptr && bufferSize != 0) *logBuffer = '\0';
  return with_graph(hGraph, [&](Graph& graph) {
    Outcome outcome;
    const CUresult result = instantiate(phGraphExec, graph, 0, &outcome);
    if (phErrorNode != nullptr) *phErrorNode = outcome.node;
    return result;
  });
}

}  // namespace

CUresult CUDAAPI cuGraphInstantiateWithParams(CUgraphExec* phGraphExec, CUgraph hGraph,
                                              CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) {
  if (instantiateParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Outcome outcome;
  CUresult result = with_graph(hGraph, [&](Graph& graph) {
    return instantiate(phGraphExec, graph, instantiateParams->flags, &outcome);
  });
  const bool upload = (instantiateParams->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0;
  if (result == CUDA_SUCCESS && upload) {
    result = cuGraphUpload(*phGraphExec, instantiateParams->hUploadStream);
    if (result != CUDA_SUCCESS) {
      outcome.result = CUDA_GRAPH_INSTANTIATE_ERROR;
      (void)cuGraphExecDestroy(*phGraphExec);
    }
  }
  instantiateParams->result_out = outcome.result;
  instantiateParams->hErrNode_out = outcome.node;
  return result;
}

CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph,
                                             unsigned long long flags) {
  return with_graph(hGraph, [&](Graph& graph) -> CUresult {
    Outcome outcome;
    if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0) return CUDA_ERROR_INVALID_VALUE;
    return instantiate(phGraphExec, graph, flags, &outcome);
  });
}

CUresult CUDAAPI cuGraphInstantiate_v2(CUgraphExec* phGraphExec, CUgraph hGraph,
                                       CUgraphNode* phErrorNode, char* logBuffer,
                                       size_t bufferSize) {
  return instantiate_old(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

CUresult CUDAAPI cuGraphInstantiate(CUgraphExec* phGraphExec, CUgraph hGraph,
                                    CUgraphNode* phErrorNode, char* logBuffer, size_t bufferSize) {
  return instantiate_old(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec hGraphExec) {
  // Seen on an H200 with driver 580, now and then.
  if (Driver::initialized() && Driver::get().settings().stream_waits) {
    const auto exec = Driver::get().registry().find<Exec>(hGraphExec);
    if (exec) exec->wait_for_launch();
  }
  return with_graphs([&]() -> CUresult {
    return Driver::get().registry().remove<Exec>(hGraphExec) ? CUDA_SUCCESS
                                                             : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult CUDAAPI cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t* flags) {
  return with_exec(hGraphExec, [&](Exec& exec) -> CUresult {
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = exec.flags() & ~uint64_t{CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY};
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphLaunch(CUgraphExec hGraph, CUstream hStream) {
  return in_stream(hGraph, hStream, [](Exec& exec, Context& context, const auto& stream) {
    const auto captured = if_captured(
        context, stream, [](Capture&) { return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; });
    return captured ? *captured : exec.launch(context, stream);
  });
}

CUresult CUDAAPI cuGraphUpload(CUgraphExec hGraph, CUstream hStream) {
  return in_stream(hGraph, hStream,
                   [](Exec& exec, Context& context, const auto& stream) -> CUresult {
                     const auto captured = if_captured(context, stream, [](Capture& capture) {
                       capture.valid = false;
                       return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
                     });
                     if (captured) return *captured;
                     exec.upload(context, stream);
                     return CUDA_SUCCESS;
                   });
}

CUresult CUDAAPI cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                                      CUgraphExecUpdateResultInfo* resultInfo) {
  return with_exec(hGraphExec, [&](Exec& exec) -> CUresult {
    CUgraphExecUpdateResultInfo unread{};
    CUgraphExecUpdateResultInfo& info = resultInfo != nullptr ? *resultInfo : unread;
    info = {};
    info.result = CU_GRAPH_EXEC_UPDATE_ERROR;
    const auto graph = find_graph(hGraph);
    if (!graph || graph->embedded) return CUDA_ERROR_INVALID_VALUE;
    const bool has_memory = has_memory_nodes(*graph);
    // Memory belongs to one executable graph at a time.
    if (has_memory && graph->executable != exec.handle() &&
        Driver::get().registry().find<Exec>(graph->executable) != nullptr) {
      info.result = CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
      return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
    const CUresult result = exec.update(*graph, &info);
    if (result == CUDA_SUCCESS && has_memory) graph->executable = exec.handle();
    return result;
  });
}

CUresult CUDAAPI cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph,
                                   CUgraphNode* hErrorNode_out,
                                   CUgraphExecUpdateResult* updateResult_out) {
  CUgraphExecUpdateResultInfo info{};
  info.result = CU_GRAPH_EXEC_UPDATE_ERROR;
  const CUresult result = cuGraphExecUpdate_v2(hGraphExec, hGraph, &info);
  if (hErrorNode_out != nullptr) *hErrorNode_out = info.errorNode;
  // As a driver does: this name of it knows no other shape of a graph.
  if (info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED)
    info.result = CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
  if (updateResult_out != nullptr) *updateResult_out = info.result;
  return result;
}

namespace {

bool can_be_disabled(const Node& node) {
  return node.operation->type() <= CU_GRAPH_NODE_TYPE_MEMSET;
}

}  // namespace

CUresult CUDAAPI cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode,
                                       unsigned int isEnabled) {
  return with_exec_node(hGraphExec, hNode, [&](Exec& exec, Node& own, Node&) -> CUresult {
    if (!can_be_disabled(own)) return CUDA_ERROR_INVALID_VALUE;
    exec.set_enabled(own, isEnabled != 0);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode,
                                       unsigned int* isEnabled) {
  return with_exec_node(hGraphExec, hNode, [&](Exec&, Node& own, Node&) -> CUresult {
    if (isEnabled == nullptr || !can_be_disabled(own)) return CUDA_ERROR_INVALID_VALUE;
    *isEnabled = own.enabled ? 1 : 0;
    return CUDA_SUCCESS;
  });
}

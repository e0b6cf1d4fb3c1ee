#include "sim/graph/operation.h"

#include <algorithm>

#include "sim/object/api.h"

namespace fargpu::sim {
namespace {

class Empty final : public Operation {
 public:
  Empty() : Operation(CU_GRAPH_NODE_TYPE_EMPTY) {}
  void params(CUgraphNodeParams* out) const override { *out = {}, out->type = type(); }
  std::function<void()> prepare(const Fence&) const override {
    return [] {};
  }
};

class Host final : public Operation {
 public:
  Host(const CUDA_HOST_NODE_PARAMS_v2& params, std::shared_ptr<Context> context)
      : Operation(CU_GRAPH_NODE_TYPE_HOST), params_(params), context_(std::move(context)) {}
  void params(CUgraphNodeParams* out) const override {
    *out = {}, out->type = type(), out->host = params_;
  }
  std::function<void()> prepare(const Fence&) const override {
    return [this] {
      if (context_ && context_->error() != CUDA_SUCCESS) return;
      const HostFunctionScope scope;
      params_.fn(params_.userData);
    };
  }

 private:
  const CUDA_HOST_NODE_PARAMS_v2 params_;
  const std::shared_ptr<Context> context_;  // may be null
};

bool is_zero_behind(const CUgraphNodeParams& params, size_t used) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(params.reserved1);
  return std::all_of(bytes + used, bytes + sizeof params.reserved1,
                     [](unsigned char byte) { return byte == 0; });
}

bool unused_is_zero(const CUgraphNodeParams& params) {
  if (params.type == CU_GRAPH_NODE_TYPE_EMPTY && !is_zero_behind(params, 0)) return false;
  if (params.type == CU_GRAPH_NODE_TYPE_HOST && !is_zero_behind(params, sizeof params.host))
    return false;
  return params.reserved0[0] == 0 && params.reserved0[1] == 0 && params.reserved0[2] == 0 &&
         params.reserved2 == 0;
}

}  // namespace

CUgraphExecUpdateResult Operation::accepts(const Operation&) const {
  return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

bool Operation::may_be_set_to(const Operation& next) const {
  return accepts(next) == CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

std::shared_ptr<const Operation> Operation::with_bodies(
    const std::vector<std::shared_ptr<Graph>>&) const {
  return nullptr;
}

OperationPtr make_empty() { return std::make_shared<Empty>(); }

CUresult make_host(const CUDA_HOST_NODE_PARAMS_v2& params, OperationPtr* operation) {
  if (params.fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Context> context;
  (void)current_context(&context);
  *operation = std::make_shared<Host>(params, std::move(context));
  return CUDA_SUCCESS;
}

CUresult node_context(CUcontext handle, std::shared_ptr<Context>* context) {
  if (handle == nullptr) return current_context(context);
  *context = find_context(handle);
  return *context && (*context)->alive() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult make_operation(CUgraphNodeParams& params, Graph& graph, OperationPtr* operation) {
  if (!unused_is_zero(params)) return CUDA_ERROR_INVALID_VALUE;
  switch (params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return make_kernel(params.kernel, operation);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return make_memcpy(params.memcpy, operation);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return make_memset(params.memset, operation);
    case CU_GRAPH_NODE_TYPE_HOST:
      return make_host(params.host, operation);
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return make_child(params.graph, graph, operation);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      *operation = make_empty();
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return make_event_wait(params.eventWait.event, operation);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return make_event_record(params.eventRecord.event, operation);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return make_alloc(params.alloc, graph, operation);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return make_free(params.free.dptr, graph, operation);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return make_batch(params.memOp, operation);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return make_conditional(params.conditional, graph, operation);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      return CUDA_ERROR_NOT_SUPPORTED;  // there are no external semaphores
  }
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace fargpu::sim

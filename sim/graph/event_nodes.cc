// The operations of nodes that record events, wait for them, or work on values in memory.
#include <vector>

#include "sim/context/event.h"
#include "sim/graph/operation.h"
#include "sim/object/api.h"
#include "sim/work/memory_operation.h"

namespace fargpu::sim {
namespace {

// From the launch on, the event stands for this place in the graph.
class EventRecordOperation final : public Operation {
 public:
  EventRecordOperation(CUevent handle, std::shared_ptr<Event> event)
      : Operation(CU_GRAPH_NODE_TYPE_EVENT_RECORD), handle_(handle), event_(std::move(event)) {}
  void params(CUgraphNodeParams* out) const override {
    *out = {}, out->type = type(), out->eventRecord.event = handle_;
  }
  std::function<void()> prepare(const Fence& done) const override {
    return event_->begin_record(done);
  }

 private:
  const CUevent handle_;
  const std::shared_ptr<Event> event_;
};

class EventWait final : public Operation {
 public:
  EventWait(CUevent handle, std::shared_ptr<Event> event)
      : Operation(CU_GRAPH_NODE_TYPE_WAIT_EVENT), handle_(handle), event_(std::move(event)) {}
  void params(CUgraphNodeParams* out) const override {
    *out = {}, out->type = type(), out->eventWait.event = handle_;
  }
  std::function<void()> prepare(const Fence&) const override {
    if (event_->shared) {
      return [shared = event_->shared, newest = event_->shared->newest()] { shared->wait(newest); };
    }
    return [record = event_->latest()] {
      if (record) record->fence->wait();
    };
  }

 private:
  const CUevent handle_;
  const std::shared_ptr<Event> event_;
};

class Batch final : public Operation {
 public:
  Batch(const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2& params, std::vector<MemoryOperation> operations,
        std::shared_ptr<Context> context)
      : Operation(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP),
        params_(params.paramArray, params.paramArray + params.count),
        operations_(std::move(operations)),
        context_(std::move(context)) {}
  void params(CUgraphNodeParams* out) const override {
    *out = {}, out->type = type();
    out->memOp.ctx = context_->handle();
    out->memOp.count = static_cast<unsigned>(params_.size());
    out->memOp.paramArray = const_cast<CUstreamBatchMemOpParams*>(params_.data());
  }
  std::function<void()> prepare(const Fence&) const override {
    return [this] { run_operations(*context_, operations_); };
  }
  CUgraphExecUpdateResult accepts(const Operation& next) const override {
    const auto& other = static_cast<const Batch&>(next);
    bool same = params_.size() == other.params_.size() && context_ == other.context_;
    for (size_t i = 0; same && i < params_.size(); ++i) {
      const CUstreamBatchMemOpParams &was = params_[i], &is = other.params_[i];
      same = was.operation == is.operation;
      const bool waits = was.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
                         was.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
      if (same && waits) {
        same = ((was.waitValue.flags ^ is.waitValue.flags) &
                unsigned{CU_STREAM_WAIT_VALUE_FLUSH}) == 0;
      }
    }
    return same ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
  }
  Context* own_context() const override { return context_.get(); }

 private:
  const std::vector<CUstreamBatchMemOpParams> params_;
  const std::vector<MemoryOperation> operations_;
  const std::shared_ptr<Context> context_;
};

std::shared_ptr<Event> find_event(CUevent handle) {
  auto event = Driver::get().registry().find<Event>(handle);
  const auto context = event ? event->context.lock() : nullptr;
  return context && context->alive() ? event : nullptr;
}

}  // namespace

CUresult make_event_record(CUevent handle, OperationPtr* operation) {
  auto event = find_event(handle);
  if (!event) return CUDA_ERROR_INVALID_VALUE;
  *operation = std::make_shared<EventRecordOperation>(handle, std::move(event));
  return CUDA_SUCCESS;
}

CUresult make_event_wait(CUevent handle, OperationPtr* operation) {
  auto event = find_event(handle);
  if (!event) return CUDA_ERROR_INVALID_VALUE;
  *operation = std::make_shared<EventWait>(handle, std::move(event));
  return CUDA_SUCCESS;
}

CUresult make_batch(const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2& params, OperationPtr* operation) {
  if (params.ctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Context> context;
  if (CUresult result = node_context(params.ctx, &context); result != CUDA_SUCCESS) return result;
  // In graphs, every write has its barrier.
  for (unsigned i = 0; params.paramArray != nullptr && i < params.count; ++i) {
    const CUstreamBatchMemOpParams& each = params.paramArray[i];
    const bool writes = each.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 ||
                        each.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
    if (writes && each.writeValue.flags != 0) return CUDA_ERROR_INVALID_VALUE;
  }
  std::vector<MemoryOperation> operations;
  CUresult result = make_operations(params.paramArray, params.count, params.flags, &operations);
  if (result == CUDA_SUCCESS) result = check_operations(operations, true);
  if (result != CUDA_SUCCESS) return result;
  *operation = std::make_shared<Batch>(params, std::move(operations), std::move(context));
  return CUDA_SUCCESS;
}

}  // namespace fargpu::sim

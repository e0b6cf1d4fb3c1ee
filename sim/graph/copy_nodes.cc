// The operations of memcpy and memset nodes.
#include "sim/graph/operation.h"
#include "sim/object/api.h"
#include "sim/work/copy.h"
#include "sim/work/copy_params.h"

namespace fargpu::sim {
namespace {

// The device that memory belongs to; -1: host memory that CUDA does not know.
int device_of(CUmemorytype type, CUdeviceptr device, const void* host) {
  const uint64_t address =
      type == CU_MEMORYTYPE_HOST ? reinterpret_cast<uint64_t>(host) : uint64_t{device};
  const auto found = Driver::get().allocations().find(address);
  return found ? found->device : -1;
}

// Memory of a pool, and mapped memory, is of no context, and takes the place of nothing else. Other
// memory, of the host or of one device, takes the place of any other.
bool may_replace(const CopySide& was, const CopySide& is) {
  if (was.where == CopySide::Where::kArray) return true;
  const auto before = Driver::get().allocations().find(was.base);
  const auto now = Driver::get().allocations().find(is.base);
  const auto is_of_no_context = [](const auto& found) {
    return found && (found->kind == Allocation::Kind::kMapped || found->pool != 0);
  };
  if (is_of_no_context(before) != is_of_no_context(now)) return false;
  if (!before || !now || before->is_host() || now->is_host()) return true;
  return before->device == now->device;
}

bool is_same(const CopySide& one, const CopySide& other) {
  return one.where == other.where && one.base == other.base && one.pitch == other.pitch &&
         one.slice == other.slice && one.handle == other.handle && one.x == other.x &&
         one.y == other.y && one.z == other.z;
}

bool is_inside_device(const CopySide& side) {
  if (side.where == CopySide::Where::kArray) return true;
  const auto found = Driver::get().allocations().find(side.base);
  return side.where != CopySide::Where::kHost && found && !found->is_host();
}

class Memcpy final : public Operation {
 public:
  Memcpy(const CUDA_MEMCPY_NODE_PARAMS& params, const Copy& copy, std::shared_ptr<Context> context)
      : Operation(CU_GRAPH_NODE_TYPE_MEMCPY),
        params_(params),
        copy_(copy),
        context_(std::move(context)) {}

  void params(CUgraphNodeParams* out) const override {
    *out = {}, out->type = type(), out->memcpy = params_;
  }
  std::function<void()> prepare(const Fence&) const override {
    return [this] {
      if (context_->error() == CUDA_SUCCESS) run_copy(copy_);
    };
  }
  bool joins_chains() const override {
    return is_inside_device(copy_.from) && is_inside_device(copy_.to);
  }
  bool launch_waits() const override { return launch_waits_for(copy_); }
  std::vector<uint64_t> addresses() const override {
    std::vector<uint64_t> used;
    for (const CopySide* side : {&copy_.from, &copy_.to})
      if (side->where != CopySide::Where::kArray) used.push_back(side->base);
    return used;
  }
  CUgraphExecUpdateResult accepts(const Operation& next) const override {
    return may_be_set_to(next) ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                               : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
  }
  // Nothing of copies of several rows may change.
  bool may_be_set_to(const Operation& next) const override {
    const auto& other = static_cast<const Memcpy&>(next);
    if (copy_.from.where != other.copy_.from.where || copy_.to.where != other.copy_.to.where ||
        context_ != other.context_)
      return false;
    if (is_row() && other.is_row())
      return may_replace(copy_.from, other.copy_.from) && may_replace(copy_.to, other.copy_.to);
    return copy_.width == other.copy_.width && copy_.height == other.copy_.height &&
           copy_.depth == other.copy_.depth && is_same(copy_.from, other.copy_.from) &&
           is_same(copy_.to, other.copy_.to);
  }
  Context* own_context() const override { return context_.get(); }

 private:
  bool is_row() const { return copy_.height == 1 && copy_.depth == 1; }

  const CUDA_MEMCPY_NODE_PARAMS params_;
  const Copy copy_;
  const std::shared_ptr<Context> context_;
};

class Memset final : public Operation {
 public:
  Memset(const CUDA_MEMSET_NODE_PARAMS_v2& params, const Fill& fill,
         std::shared_ptr<Context> context)
      : Operation(CU_GRAPH_NODE_TYPE_MEMSET),
        params_(params),
        fill_(fill),
        context_(std::move(context)) {}

  void params(CUgraphNodeParams* out) const override {
    *out = {}, out->type = type(), out->memset = params_;
  }
  std::function<void()> prepare(const Fence&) const override {
    return [this] {
      if (context_->error() == CUDA_SUCCESS) run_fill(fill_);
    };
  }
  std::vector<uint64_t> addresses() const override { return {params_.dst}; }
  CUgraphExecUpdateResult accepts(const Operation& next) const override {
    const auto& other = static_cast<const Memset&>(next);
    const CUDA_MEMSET_NODE_PARAMS_v2 &was = params_, &is = other.params_;
    const bool same_shape =
        was.width == is.width && was.pitch == is.pitch && was.elementSize == is.elementSize;
    const bool possible = was.height == is.height && (was.height == 1 || same_shape) &&
                          context_ == other.context_ &&
                          device_of(CU_MEMORYTYPE_DEVICE, was.dst, nullptr) ==
                              device_of(CU_MEMORYTYPE_DEVICE, is.dst, nullptr);
    return possible ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
  }
  Context* own_context() const override { return context_.get(); }

 private:
  const CUDA_MEMSET_NODE_PARAMS_v2 params_;
  const Fill fill_;
  const std::shared_ptr<Context> context_;
};

}  // namespace

CUresult make_memcpy(const CUDA_MEMCPY_NODE_PARAMS& params, OperationPtr* operation) {
  if (params.flags != 0 || params.reserved != 0) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Context> context;
  if (CUresult result = node_context(params.copyCtx, &context); result != CUDA_SUCCESS)
    return result;
  Copy copy;
  if (CUresult result = to_copy(params.copyParams, &copy); result != CUDA_SUCCESS) return result;
  if (copy.empty()) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult result = check_copy(copy); result != CUDA_SUCCESS) return result;
  CUDA_MEMCPY_NODE_PARAMS kept = params;
  kept.copyCtx = context->handle();
  *operation = std::make_shared<Memcpy>(kept, copy, std::move(context));
  return CUDA_SUCCESS;
}

CUresult make_memset(const CUDA_MEMSET_NODE_PARAMS_v2& params, OperationPtr* operation) {
  std::shared_ptr<Context> context;
  if (CUresult result = node_context(params.ctx, &context); result != CUDA_SUCCESS) return result;
  const unsigned bytes = params.elementSize;
  if ((bytes != 1 && bytes != 2 && bytes != 4) || params.width == 0 || params.height == 0)
    return CUDA_ERROR_INVALID_VALUE;
  const Fill fill{params.dst, params.pitch, params.width, params.height, params.value, bytes};
  if (CUresult result = check_fill(fill); result != CUDA_SUCCESS) return result;
  CUDA_MEMSET_NODE_PARAMS_v2 kept = params;
  kept.ctx = context->handle();
  *operation = std::make_shared<Memset>(kept, fill, std::move(context));
  return CUDA_SUCCESS;
}

}  // namespace fargpu::sim

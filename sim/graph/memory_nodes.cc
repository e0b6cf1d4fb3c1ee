// The operations of allocation and free nodes. The memory is there from the launch on, and goes
// when the free has run.
#include <algorithm>
#include <vector>

#include "sim/graph/graph.h"
#include "sim/graph/operation.h"
#include "sim/object/api.h"

namespace fargpu::sim {
namespace {

class Alloc final : public Operation {
 public:
  Alloc(const CUDA_MEM_ALLOC_NODE_PARAMS_v2& params, std::shared_ptr<GraphBlock> block)
      : Operation(CU_GRAPH_NODE_TYPE_MEM_ALLOC),
        params_(params),
        access_(params.accessDescs, params.accessDescs + params.accessDescCount),
        block_(std::move(block)) {}
  void params(CUgraphNodeParams* out) const override {
    *out = {}, out->type = type(), out->alloc = params_;
    out->alloc.accessDescs = access_.empty() ? &no_access_ : access_.data();
    out->alloc.dptr = block_->address;
  }
  std::function<void()> prepare(const Fence&) const override {
    return [] {};
  }
  // Memory of the same kind may be other memory.
  CUgraphExecUpdateResult accepts(const Operation& next) const override {
    const GraphBlock& other = *next.block();
    const bool alike = &other.owner == &block_->owner && other.bytes == block_->bytes &&
                       other.access == block_->access;
    return alike ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
  }
  std::shared_ptr<GraphBlock> block() const override { return block_; }

 private:
  const CUDA_MEM_ALLOC_NODE_PARAMS_v2 params_;
  const std::vector<CUmemAccessDesc> access_;
  const CUmemAccessDesc no_access_{};  // a driver gives a pointer all the same
  const std::shared_ptr<GraphBlock> block_;
};

class Free final : public Operation {
 public:
  explicit Free(std::shared_ptr<GraphBlock> block)
      : Operation(CU_GRAPH_NODE_TYPE_MEM_FREE), block_(std::move(block)) {}
  void params(CUgraphNodeParams* out) const override {
    *out = {}, out->type = type(), out->free.dptr = block_->address;
  }
  std::function<void()> prepare(const Fence&) const override {
    return [this] { block_->owner.end(*block_); };
  }
  // Only the same memory.
  CUgraphExecUpdateResult accepts(const Operation& next) const override {
    return next.block() == block_ ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR;
  }
  std::shared_ptr<GraphBlock> block() const override { return block_; }

 private:
  const std::shared_ptr<GraphBlock> block_;
};

// One bit for each device that may use the memory.
CUresult read_access(const CUDA_MEM_ALLOC_NODE_PARAMS_v2& params, uint32_t* mask) {
  const CUmemPoolProps& props = params.poolProps;
  Driver& driver = Driver::get();
  if (props.allocType != CU_MEM_ALLOCATION_TYPE_PINNED || params.bytesize == 0)
    return CUDA_ERROR_INVALID_VALUE;
  const bool on_host = props.location.type == CU_MEM_LOCATION_TYPE_HOST ||
                       props.location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
  if (props.handleTypes != CU_MEM_HANDLE_TYPE_NONE || on_host) return CUDA_ERROR_NOT_SUPPORTED;
  if (props.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  if (driver.device(props.location.id) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mask = uint32_t{1} << props.location.id;
  if (params.accessDescCount > driver.devices().size() ||
      (params.accessDescCount != 0 && params.accessDescs == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < params.accessDescCount; ++i) {
    const CUmemAccessDesc& access = params.accessDescs[i];
    if (access.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        driver.device(access.location.id) == nullptr) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (access.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      *mask |= uint32_t{1} << access.location.id;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult check_memory(const Operation& operation, const Node* node) {
  for (const uint64_t address : operation.addresses()) {
    const auto found = Driver::get().allocations().find(address);
    if (!found || !found->graph) continue;
    const auto block = Driver::get().device(found->device)->graph_memory().find(found->base);
    if (!block || !block->freed_at_home) continue;
    if (node == nullptr || node->graph->handle != block->home) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult make_alloc(CUDA_MEM_ALLOC_NODE_PARAMS_v2& params, Graph& graph, OperationPtr* operation) {
  if (graph.moved) return CUDA_ERROR_NOT_SUPPORTED;
  if (graph.embedded && !graph.conditional_body) return CUDA_ERROR_INVALID_VALUE;
  uint32_t access = 0;
  if (CUresult result = read_access(params, &access); result != CUDA_SUCCESS) return result;
  auto block = Driver::get()
                   .device(params.poolProps.location.id)
                   ->graph_memory()
                   .make(params.bytesize, access);
  if (!block) return CUDA_ERROR_OUT_OF_MEMORY;
  block->home = graph.handle;
  params.dptr = block->address;
  *operation = std::make_shared<Alloc>(params, std::move(block));
  return CUDA_SUCCESS;
}

CUresult make_free(CUdeviceptr address, Graph& graph, OperationPtr* operation) {
  if (graph.moved) return CUDA_ERROR_NOT_SUPPORTED;
  if (graph.embedded && !graph.conditional_body) return CUDA_ERROR_INVALID_VALUE;
  const auto found = Driver::get().allocations().find(address);
  if (!found || !found->graph || found->base != address) return CUDA_ERROR_INVALID_VALUE;
  auto block = Driver::get().device(found->device)->graph_memory().find(address);
  if (!block) return CUDA_ERROR_INVALID_VALUE;
  const bool twice = std::ranges::any_of(graph.nodes, [&block](const auto& node) {
    return node->operation->type() == CU_GRAPH_NODE_TYPE_MEM_FREE &&
           node->operation->block() == block;
  });
  const bool at_home = block->home == graph.handle;
  if (twice || (at_home ? block->freed_abroad || block->instantiated : block->freed_at_home))
    return CUDA_ERROR_INVALID_VALUE;
  (at_home ? block->freed_at_home : block->freed_abroad) = true;
  *operation = std::make_shared<Free>(std::move(block));
  return CUDA_SUCCESS;
}

}  // namespace fargpu::sim

#include "server/graph/graph_base.h"

#include <algorithm>

namespace fargpu::server {

std::shared_ptr<GraphBase> GraphBase::make(const GraphParts& parts) {
  std::shared_ptr<GraphBase> base(new GraphBase(parts));
  return parts.core.driver.cuGraphCreate(&base->graph_, 0) == CUDA_SUCCESS ? base : nullptr;
}

GraphBase::~GraphBase() {
  if (graph_ != nullptr) (void)parts_.core.driver.cuGraphDestroy(graph_);
}

CUresult GraphBase::allocate(const CUmemPoolProps& pool, std::span<const CUmemAccessDesc> access,
                             size_t bytes, CUdeviceptr* address, unsigned* number) {
  const DriverTable& driver = parts_.core.driver;
  if (driver.cuGraphAddMemAllocNode == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (built_) return CUDA_ERROR_NOT_SUPPORTED;
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.poolProps = pool;
  params.accessDescs = access.empty() ? nullptr : access.data();
  params.accessDescCount = access.size();
  params.bytesize = bytes;
  CUgraphNode node = nullptr;
  const CUresult result = driver.cuGraphAddMemAllocNode(&node, graph_, nullptr, 0, &params);
  if (result != CUDA_SUCCESS) return result;
  *address = params.dptr;
  *number = static_cast<unsigned>(allocations_.size());
  allocations_.push_back(node);
  addresses_.push_back(params.dptr);
  return CUDA_SUCCESS;
}

CUresult GraphBase::add_updatable(schema::graph::Node::Reader description,
                                  CUgraphDeviceNode* handle, unsigned* number) {
  constexpr auto kUpdatable = CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE;
  const DriverTable& driver = parts_.core.driver;
  if (driver.cuGraphKernelNodeSetAttribute == nullptr ||
      driver.cuGraphKernelNodeGetAttribute == nullptr || built_)
    return CUDA_ERROR_NOT_SUPPORTED;
  CUgraphNode node = nullptr;
  CUresult result = add_kernel(parts_, description, graph_, &node);
  CUlaunchAttributeValue value{};
  value.deviceUpdatableKernelNode.deviceUpdatable = 1;
  if (result == CUDA_SUCCESS)
    result = driver.cuGraphKernelNodeSetAttribute(node, kUpdatable, &value);
  if (result == CUDA_SUCCESS && value.deviceUpdatableKernelNode.devNode == nullptr)
    result = driver.cuGraphKernelNodeGetAttribute(node, kUpdatable, &value);
  if (result != CUDA_SUCCESS) {
    // It may be there without an attribute that was refused: the client adds it once more.
    if (node != nullptr) (void)driver.cuGraphDestroyNode(node);
    return result;
  }
  *handle = value.deviceUpdatableKernelNode.devNode;
  *number = static_cast<unsigned>(updatable_.size());
  updatable_.push_back(node);
  return CUDA_SUCCESS;
}

CUresult GraphBase::build(schema::graph::Nodes::Reader description,
                          std::span<const std::byte> bytes, GraphPlaces** places) {
  *places = &places_;
  if (built_) {
    return places_.host_nodes.empty() &&
                   std::equal(bytes.begin(), bytes.end(), description_.begin(), description_.end())
               ? CUDA_SUCCESS
               : CUDA_ERROR_NOT_SUPPORTED;
  }
  built_ = true;
  places_.allocations = allocations_;
  places_.updatable = updatable_;
  const CUresult result = build_graph(parts_, description, graph_, &places_);
  if (result == CUDA_SUCCESS) description_.assign(bytes.begin(), bytes.end());
  return result;
}

bool GraphBase::begin_move(std::vector<CUgraphNode>* allocations) {
  if (std::exchange(built_, true)) return false;
  *allocations = allocations_;
  return true;
}

}  // namespace fargpu::server

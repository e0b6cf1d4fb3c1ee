#include "server/graph/graph_base.h"

#include "server/graph/leaf_nodes.h"
#include "server/graph/node_params.h"

namespace fargpu::server {

std::shared_ptr<GraphBase> GraphBase::make(const GraphParts& parts) {
  std::shared_ptr<GraphBase> base(new GraphBase(parts));
  return parts.core.driver.cuGraphCreate(&base->made_.graph, 0) == CUDA_SUCCESS ? base : nullptr;
}

GraphBase::~GraphBase() {
  if (made_.graph != nullptr) (void)parts_.core.driver.cuGraphDestroy(made_.graph);
}

CUresult GraphBase::allocate(const CUmemPoolProps& pool, std::span<const CUmemAccessDesc> access,
                             size_t bytes, CUdeviceptr* address, unsigned* number) {
  const DriverTable& driver = parts_.core.driver;
  if (driver.cuGraphAddMemAllocNode == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (get() == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.poolProps = pool;
  params.accessDescs = access.empty() ? nullptr : access.data();
  params.accessDescCount = access.size();
  params.bytesize = bytes;
  CUgraphNode node = nullptr;
  const CUresult result = driver.cuGraphAddMemAllocNode(&node, get(), nullptr, 0, &params);
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
      driver.cuGraphKernelNodeGetAttribute == nullptr || get() == nullptr)
    return CUDA_ERROR_NOT_SUPPORTED;
  require(description.isKernel() && description.getDependencies().size() == 0,
          "not a kernel node alone");
  CUcontext context = nullptr;
  CUresult result = enter_context(parts_, description, &context);
  if (result != CUDA_SUCCESS) return result;
  GraphPlaces unused;
  CUgraphNode node = nullptr;
  result = add_leaf(parts_, unused, description, get(), nullptr, 0, context, &node);
  CUlaunchAttributeValue value{};
  value.deviceUpdatableKernelNode.deviceUpdatable = 1;
  if (result == CUDA_SUCCESS)
    result = driver.cuGraphKernelNodeSetAttribute(node, kUpdatable, &value);
  if (result == CUDA_SUCCESS && value.deviceUpdatableKernelNode.devNode == nullptr)
    result = driver.cuGraphKernelNodeGetAttribute(node, kUpdatable, &value);
  if (result != CUDA_SUCCESS) {
    // It may be there without an attribute that was refused: the client adds it once more.
    if (node != nullptr && driver.cuGraphDestroyNode(node) != CUDA_SUCCESS)
      made_.retired.push_back(node);  // of a graph with memory
    return result;
  }
  *handle = value.deviceUpdatableKernelNode.devNode;
  *number = static_cast<unsigned>(updatable_.size());
  updatable_.push_back(node);
  return CUDA_SUCCESS;
}

CUresult GraphBase::edit(schema::graph::Nodes::Reader description, GraphPlaces* places) {
  if (get() == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  return GraphEditor(parts_, *places, gone_).edit(description, made_, early());
}

}  // namespace fargpu::server

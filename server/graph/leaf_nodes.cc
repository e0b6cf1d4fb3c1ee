#include "server/graph/leaf_nodes.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "server/graph/node_params.h"

namespace fargpu::server {
namespace {

using Node = schema::graph::Node;

constexpr auto kClusters = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;

bool is_plain(const CUgraphEdgeData& data) {
  constexpr CUgraphEdgeData kPlain{};
  return std::memcmp(&data, &kPlain, sizeof kPlain) == 0;
}

// Of a kernel node or of one that kernels update.
schema::graph::Kernel::Reader kernel_of(Node::Reader node) {
  return node.isKernel() ? node.getKernel() : node.getUpdatable().getKernel();
}

CUresult set_attributes(const GraphParts& parts, schema::graph::Kernel::Reader kernel,
                        CUgraphNode made) {
  const DriverTable& driver = parts.core.driver;
  for (const CUlaunchAttribute& attribute : attributes_of(kernel)) {
    if (driver.cuGraphKernelNodeSetAttribute == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    const CUresult result =
        driver.cuGraphKernelNodeSetAttribute(made, attribute.id, &attribute.value);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

// Attributes can be taken away by a node that does not have them.
CUresult copy_attributes(const GraphParts& parts, Node::Reader node, CUcontext context,
                         CUgraphNode made) {
  const DriverTable& driver = parts.core.driver;
  if (driver.cuGraphKernelNodeCopyAttributes == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUgraph graph = nullptr;
  CUresult result = driver.cuGraphCreate(&graph, 0);
  if (result != CUDA_SUCCESS) return result;
  GraphPlaces unused;
  CUgraphNode like_it = nullptr;
  result = add_leaf(parts, unused, node, graph, nullptr, 0, context, &like_it);
  if (result == CUDA_SUCCESS) result = driver.cuGraphKernelNodeCopyAttributes(made, like_it);
  (void)driver.cuGraphDestroy(graph);
  return result;
}

CUresult change_kernel(const GraphParts& parts, Node::Reader node, CUcontext context,
                       const std::set<CUlaunchAttributeID>& had, CUgraphNode made) {
  const DriverTable& driver = parts.core.driver;
  KernelParams params;
  CUresult result = params.take(parts, context, kernel_in(kernel_of(node)));
  if (result != CUDA_SUCCESS) return result;
  const auto has = attribute_ids(node);
  if ((had.contains(kClusters) || has.contains(kClusters)) &&
      driver.cuGraphKernelNodeSetAttribute != nullptr) {
    // Those for the grid up to now need not fit into the new one.
    CUlaunchAttributeValue one{};
    one.clusterDim = {1, 1, 1};
    (void)driver.cuGraphKernelNodeSetAttribute(made, kClusters, &one);
  }
  result = driver.cuGraphKernelNodeSetParams_v2(made, params.get());
  if (result != CUDA_SUCCESS) return result;
  const bool all_stay = std::includes(has.begin(), has.end(), had.begin(), had.end());
  return all_stay ? set_attributes(parts, kernel_of(node), made)
                  : copy_attributes(parts, node, context, made);
}

CUresult change_copy(const GraphParts& parts, Node::Reader node, CUcontext context,
                     CUgraphNode made) {
  const DriverTable& driver = parts.core.driver;
  CUDA_MEMCPY3D copy;
  if (const CUresult result = read_copy(parts, node.getCopy(), &copy); result != CUDA_SUCCESS)
    return result;
  if (driver.cuGraphNodeSetParams == nullptr) return driver.cuGraphMemcpyNodeSetParams(made, &copy);
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  params.memcpy.copyCtx = context;
  params.memcpy.copyParams = copy;
  return driver.cuGraphNodeSetParams(made, &params);
}

CUresult change_fill(const GraphParts& parts, Node::Reader node, CUcontext context,
                     CUgraphNode made) {
  const DriverTable& driver = parts.core.driver;
  const auto fill = read<CUDA_MEMSET_NODE_PARAMS>(node.getFill(), "a fill's wrong size");
  if (driver.cuGraphNodeSetParams == nullptr) return driver.cuGraphMemsetNodeSetParams(made, &fill);
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_MEMSET;
  params.memset = {fill.dst,   fill.pitch,  fill.value, fill.elementSize,
                   fill.width, fill.height, context};
  return driver.cuGraphNodeSetParams(made, &params);
}

// Whose launch a node is in is known by what it calls: each executable graph has its own.
HostGate::Node& new_host(const GraphParts& parts, GraphPlaces& places) {
  auto host = std::make_shared<HostGate::Node>(HostGate::Node{.gate = &parts.host_gate});
  places.host_nodes.push_back(std::move(host));
  places.host_places.push_back(static_cast<uint32_t>(places.nodes.size() - 1));
  return *places.host_nodes.back();
}

CUDA_HOST_NODE_PARAMS new_host_node(const GraphParts& parts, GraphPlaces& places) {
  return {&HostGate::reached_in_graph, &new_host(parts, places)};
}

CUresult add_host(const GraphParts& parts, GraphPlaces& places, CUgraph graph,
                  const CUgraphNode* before, size_t count, CUgraphNode* made) {
  const DriverTable& driver = parts.core.driver;
  if (!places.by_words) {
    const CUDA_HOST_NODE_PARAMS params = new_host_node(parts, places);
    return driver.cuGraphAddHostNode(made, graph, before, count, &params);
  }
  // A driver takes operations in the place of others of the same context only.
  if (const size_t place = places.host_nodes.size(); place < places.word_contexts.size()) {
    const CUresult entered = parts.core.contexts.enter(places.word_contexts[place]);
    if (entered != CUDA_SUCCESS) return entered;
  }
  HostGate::Node& host = new_host(parts, places);
  if (const CUresult result = parts.host_gate.give_words(host); result != CUDA_SUCCESS)
    return result;
  auto operations = host.words->operations();
  const CUDA_BATCH_MEM_OP_NODE_PARAMS params{parts.core.contexts.find(host.words->context()),
                                             static_cast<unsigned>(operations.size()),
                                             operations.data(), 0};
  return driver.cuGraphAddBatchMemOpNode(made, graph, before, count, &params);
}

}  // namespace

CUresult enter_context(const GraphParts& parts, Node::Reader node, CUcontext* context) {
  *context = nullptr;
  if (node.getContext() == 0) return CUDA_SUCCESS;
  *context = parts.core.contexts.find(node.getContext());
  return *context == nullptr ? CUDA_ERROR_INVALID_CONTEXT
                             : parts.core.contexts.enter(node.getContext());
}

namespace {

void set_source(CUDA_MEMCPY3D& copy, const CUDA_MEMCPY3D& to) {
  copy.srcXInBytes = to.dstXInBytes;
  copy.srcY = to.dstY;
  copy.srcZ = to.dstZ;
  copy.srcMemoryType = to.dstMemoryType;
  copy.srcHost = to.dstHost;
  copy.srcDevice = to.dstDevice;
  copy.srcArray = to.dstArray;
  copy.srcPitch = to.dstPitch;
  copy.srcHeight = to.dstHeight;
}

void set_destination(CUDA_MEMCPY3D& copy, const CUDA_MEMCPY3D& from) {
  copy.dstXInBytes = from.srcXInBytes;
  copy.dstY = from.srcY;
  copy.dstZ = from.srcZ;
  copy.dstMemoryType = from.srcMemoryType;
  copy.dstHost = const_cast<void*>(from.srcHost);
  copy.dstDevice = from.srcDevice;
  copy.dstArray = from.srcArray;
  copy.dstPitch = from.srcPitch;
  copy.dstHeight = from.srcHeight;
}

// A driver takes no new copy of memory that the graph frees, but one that is there may come to use
// it: a copy from one of its ends to the same end becomes this one.
CUresult add_copy_in_two_steps(const DriverTable& driver, const CUDA_MEMCPY3D& copy, CUgraph graph,
                               const CUgraphNode* before, size_t count, CUcontext context,
                               CUgraphNode* made) {
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  for (const bool within_source : {false, true}) {
    CUDA_MEMCPY3D within = copy;
    within_source ? set_destination(within, copy) : set_source(within, copy);
    result = driver.cuGraphAddMemcpyNode(made, graph, before, count, &within, context);
    if (result == CUDA_SUCCESS) return driver.cuGraphMemcpyNodeSetParams(*made, &copy);
  }
  return result;
}

}  // namespace

CUresult add_leaf(const GraphParts& parts, GraphPlaces& places, Node::Reader node, CUgraph graph,
                  const CUgraphNode* before, size_t count, CUcontext context, CUgraphNode* made) {
  const DriverTable& driver = parts.core.driver;
  switch (node.which()) {
    case Node::EMPTY:
      return driver.cuGraphAddEmptyNode(made, graph, before, count);
    case Node::KERNEL: {
      KernelParams params;
      if (const CUresult result = params.take(parts, context, kernel_in(node.getKernel()));
          result != CUDA_SUCCESS)
        return result;
      const CUresult result =
          driver.cuGraphAddKernelNode_v2(made, graph, before, count, params.get());
      return result == CUDA_SUCCESS ? set_attributes(parts, node.getKernel(), *made) : result;
    }
    case Node::COPY: {
      CUDA_MEMCPY3D copy;
      if (const CUresult result = read_copy(parts, node.getCopy(), &copy); result != CUDA_SUCCESS)
        return result;
      const CUresult result =
          driver.cuGraphAddMemcpyNode(made, graph, before, count, &copy, context);
      return result == CUDA_ERROR_INVALID_VALUE
                 ? add_copy_in_two_steps(driver, copy, graph, before, count, context, made)
                 : result;
    }
    case Node::FILL: {
      const auto fill = read<CUDA_MEMSET_NODE_PARAMS>(node.getFill(), "a fill's wrong size");
      return driver.cuGraphAddMemsetNode(made, graph, before, count, &fill, context);
    }
    case Node::HOST:
      return add_host(parts, places, graph, before, count, made);
    case Node::RECORD_EVENT:
    case Node::WAIT_EVENT: {
      CUevent event = nullptr;
      if (const CUresult result = event_of(parts, node, &event); result != CUDA_SUCCESS)
        return result;
      return node.isRecordEvent()
                 ? driver.cuGraphAddEventRecordNode(made, graph, before, count, event)
                 : driver.cuGraphAddEventWaitNode(made, graph, before, count, event);
    }
    case Node::OPERATIONS: {
      const OperationParams params(node.getOperations(), context);
      if (driver.cuGraphAddBatchMemOpNode == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
      places.waits = places.waits || params.waits();
      return driver.cuGraphAddBatchMemOpNode(made, graph, before, count, &params.params);
    }
    case Node::FREE:
      if (driver.cuGraphAddMemFreeNode == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
      places.freed.push_back(node.getFree());
      return driver.cuGraphAddMemFreeNode(made, graph, before, count, node.getFree());
    default:
      return CUDA_ERROR_NOT_SUPPORTED;  // of a later release
  }
}

CUresult change_leaf(const GraphParts& parts, GraphPlaces& places, Node::Reader node,
                     CUcontext context, bool changed, const std::set<CUlaunchAttributeID>& had,
                     CUgraphNode made) {
  const DriverTable& driver = parts.core.driver;
  switch (node.which()) {
    case Node::KERNEL:
    case Node::UPDATABLE:
      return changed ? change_kernel(parts, node, context, had, made) : CUDA_SUCCESS;
    case Node::COPY:
      return changed ? change_copy(parts, node, context, made) : CUDA_SUCCESS;
    case Node::FILL:
      return changed ? change_fill(parts, node, context, made) : CUDA_SUCCESS;
    case Node::HOST: {
      const CUDA_HOST_NODE_PARAMS params = new_host_node(parts, places);
      return driver.cuGraphHostNodeSetParams(made, &params);
    }
    case Node::RECORD_EVENT:
    case Node::WAIT_EVENT: {
      CUevent event = nullptr;
      const CUresult result = event_of(parts, node, &event);
      if (result != CUDA_SUCCESS || !changed) return result;
      return node.isRecordEvent() ? driver.cuGraphEventRecordNodeSetEvent(made, event)
                                  : driver.cuGraphEventWaitNodeSetEvent(made, event);
    }
    case Node::OPERATIONS: {
      const OperationParams params(node.getOperations(), context);
      places.waits = places.waits || params.waits();
      if (!changed) return CUDA_SUCCESS;
      if (driver.cuGraphBatchMemOpNodeSetParams == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
      return driver.cuGraphBatchMemOpNodeSetParams(made, &params.params);
    }
    case Node::FREE:
      places.freed.push_back(node.getFree());
      [[fallthrough]];
    default:
      return changed ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
  }
}

std::set<CUlaunchAttributeID> attribute_ids(Node::Reader node) {
  std::set<CUlaunchAttributeID> ids;
  if (!node.isKernel() && !node.isUpdatable()) return ids;
  for (const CUlaunchAttribute& attribute : attributes_of(kernel_of(node)))
    ids.insert(attribute.id);
  return ids;
}

// Drivers before 12.3 know plain edges alone.
CUresult add_edges(const DriverTable& driver, CUgraph graph, const CUgraphNode* from,
                   const CUgraphNode* to, const CUgraphEdgeData* data, size_t count) {
  if (driver.cuGraphAddDependencies_v2 != nullptr)
    return driver.cuGraphAddDependencies_v2(graph, from, to, data, count);
  return driver.cuGraphAddDependencies_v1 != nullptr && std::all_of(data, data + count, is_plain)
             ? driver.cuGraphAddDependencies_v1(graph, from, to, count)
             : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult remove_edge(const DriverTable& driver, CUgraph graph, CUgraphNode from, CUgraphNode to,
                     const CUgraphEdgeData& data) {
  if (driver.cuGraphRemoveDependencies_v2 != nullptr)
    return driver.cuGraphRemoveDependencies_v2(graph, &from, &to, &data, 1);
  return driver.cuGraphRemoveDependencies_v1 != nullptr
             ? driver.cuGraphRemoveDependencies_v1(graph, &from, &to, 1)
             : CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace fargpu::server

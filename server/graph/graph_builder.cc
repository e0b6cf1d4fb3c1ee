#include "server/graph/graph_builder.h"

#include <kj/exception.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "schema/support/cuda_rules.h"
#include "server/graph/graph_base.h"

namespace fargpu::server {
namespace {

using Nodes = schema::graph::Nodes;
using Node = schema::graph::Node;

constexpr size_t kMaxAttributes = 32, kMaxOperations = 256;

void require(bool holds, const char* what) {
  if (holds) return;
  kj::throwFatalException(
      kj::Exception(kj::Exception::Type::FAILED, __FILE__, __LINE__, kj::heapString(what)));
}

template <typename T>
T read(capnp::Data::Reader data, const char* what) {
  require(data.size() == sizeof(T), what);
  T value;
  std::memcpy(&value, data.begin(), sizeof value);
  return value;
}

template <typename T>
std::vector<T> read_all(capnp::Data::Reader data, size_t most, const char* what) {
  require(data.size() % sizeof(T) == 0 && data.size() / sizeof(T) <= most, what);
  std::vector<T> values(data.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), data.begin(), data.size());
  return values;
}

template <typename Handle>
CUresult find(const GraphParts& parts, rpc::HandleKind kind, uint64_t id, Handle* handle) {
  void* found = nullptr;
  const CUresult result = parts.core.handles.find(kind, id, &found);
  *handle = static_cast<Handle>(found);
  return result;
}

// A kernel node's parameters, with what they point to.
class KernelParams {
 public:
  CUresult take(const GraphParts& parts, CUcontext context, schema::graph::Kernel::Reader kernel) {
    const uint64_t id = kernel.getFunction();
    const auto packed = kernel.getParameters();
    require(packed.size() <= schema::kMaxParameterBytes, "too many bytes of parameters");
    bytes_.resize(packed.size());
    if (packed.size() > 0) std::memcpy(bytes_.data(), packed.begin(), packed.size());
    CUresult result = CUDA_SUCCESS;
    if (rpc::handle_kind(id) == rpc::HandleKind::kKernel) {
      result = find(parts, rpc::HandleKind::kKernel, id, &params_.kern);
      params_.ctx = context;
    } else {
      result = find(parts, rpc::HandleKind::kFunction, id, &params_.func);
    }
    params_.gridDimX = kernel.getGridX();
    params_.gridDimY = kernel.getGridY();
    params_.gridDimZ = kernel.getGridZ();
    params_.blockDimX = kernel.getBlockX();
    params_.blockDimY = kernel.getBlockY();
    params_.blockDimZ = kernel.getBlockZ();
    params_.sharedMemBytes = kernel.getSharedBytes();
    if (bytes_.empty()) return result;
    const ParameterLayout* const layout = parts.parameter_layouts.find(id);
    if (layout == nullptr) {
      extra_ = {CU_LAUNCH_PARAM_BUFFER_POINTER, bytes_.data(), CU_LAUNCH_PARAM_BUFFER_SIZE, &size_,
                CU_LAUNCH_PARAM_END};
      size_ = bytes_.size();
      params_.extra = extra_.data();
      return result;
    }
    for (size_t i = 0; i < layout->offsets.size(); ++i) {
      require(layout->offsets[i] + layout->sizes[i] <= bytes_.size(),
              "the kernel has more parameters than came");
      each_.push_back(bytes_.data() + layout->offsets[i]);
    }
    params_.kernelParams = each_.data();
    return result;
  }
  const CUDA_KERNEL_NODE_PARAMS* get() const { return &params_; }

 private:
  CUDA_KERNEL_NODE_PARAMS params_{};
  std::vector<std::byte> bytes_;
  std::vector<void*> each_, extra_;
  size_t size_ = 0;
};

std::vector<CUlaunchAttribute> attributes_of(schema::graph::Kernel::Reader kernel) {
  auto attributes =
      read_all<CUlaunchAttribute>(kernel.getAttributes(), kMaxAttributes, "wrong attributes");
  for (const CUlaunchAttribute& attribute : attributes) {
    require(attribute.id != CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE &&
                attribute.id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT &&
                attribute.id != CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT,
            "an attribute that no node has");
  }
  return attributes;
}

CUresult read_copy(const GraphParts& parts, capnp::Data::Reader data, CUDA_MEMCPY3D* copy) {
  *copy = read<CUDA_MEMCPY3D>(data, "a copy has the wrong size");
  const auto resolve = [&](CUmemorytype type, const void** host, CUarray* array) {
    // A driver would take an address that it does not know for memory of this process.
    require(type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_ARRAY,
            "a copy names other memory than the device's");
    *host = nullptr;
    const auto id = reinterpret_cast<uint64_t>(*array);
    *array = nullptr;
    return type == CU_MEMORYTYPE_ARRAY ? find(parts, rpc::HandleKind::kArray, id, array)
                                       : CUDA_SUCCESS;
  };
  copy->reserved0 = copy->reserved1 = nullptr;
  const void* host = nullptr;
  const CUresult result = resolve(copy->srcMemoryType, &copy->srcHost, &copy->srcArray);
  const CUresult other = resolve(copy->dstMemoryType, &host, &copy->dstArray);
  copy->dstHost = nullptr;
  return result == CUDA_SUCCESS ? other : result;
}

// A node of operations, with what it points to.
struct OperationParams {
  std::vector<CUstreamBatchMemOpParams> operations;
  CUDA_BATCH_MEM_OP_NODE_PARAMS params{};

  OperationParams(schema::graph::Operations::Reader given, CUcontext context)
      : operations(read_all<CUstreamBatchMemOpParams>(given.getOperations(), kMaxOperations,
                                                      "wrong operations")) {
    params.ctx = context;
    params.count = static_cast<unsigned>(operations.size());
    params.paramArray = operations.data();
    params.flags = given.getFlags();
  }
  bool waits() const { return std::any_of(operations.begin(), operations.end(), schema::is_wait); }
};

class Builder {
 public:
  Builder(const GraphParts& parts, GraphPlaces& places) : parts_(parts), places_(places) {}

  CUresult build(Nodes::Reader description, CUgraph graph, unsigned depth = 0) {
    require(depth < schema::kMaxGraphDepth, "graphs too deep inside each other");
    const auto nodes = description.getNodes();
    std::vector<CUgraphNode> added;
    added.reserve(nodes.size());
    for (const auto node : nodes) {
      require(places_.nodes.size() < kMaxGraphNodes, "too many nodes");
      CUgraphNode made = nullptr;
      if (const CUresult result = add(node, graph, added, &made, depth); result != CUDA_SUCCESS)
        return result;
      added.push_back(made);
    }
    return CUDA_SUCCESS;
  }

  CUresult add_alone(Node::Reader node, CUgraph graph, CUgraphNode* made) {
    return add(node, graph, {}, made, 0);
  }

 private:
  const DriverTable& driver() const { return parts_.core.driver; }

  CUresult add(Node::Reader node, CUgraph graph, const std::vector<CUgraphNode>& earlier,
               CUgraphNode* made, unsigned depth) {
    std::vector<CUgraphNode> before;
    for (const uint32_t number : node.getDependencies()) {
      require(number < earlier.size(), "a node depends on a later one");
      before.push_back(earlier[number]);
    }
    const auto edges =
        read_all<CUgraphEdgeData>(node.getEdges(), before.size(), "wrong data of edges");
    require(edges.empty() || edges.size() == before.size(), "wrong data of edges");
    CUcontext context = nullptr;
    if (node.getContext() != 0) {
      context = parts_.core.contexts.find(node.getContext());
      if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
      if (const CUresult result = parts_.core.contexts.enter(node.getContext());
          result != CUDA_SUCCESS)
        return result;
    }
    // Edges with data are made afterwards.
    const size_t count = edges.empty() ? before.size() : 0;
    const size_t place = places_.nodes.size();
    places_.nodes.push_back(nullptr);
    CUresult result =
        add_to(node, graph, count == 0 ? nullptr : before.data(), count, context, made, depth);
    if (result == CUDA_SUCCESS && !edges.empty()) {
      const std::vector<CUgraphNode> to(before.size(), *made);
      result = add_edges(graph, before.data(), to.data(), edges.data(), before.size());
    }
    if (result == CUDA_SUCCESS)
      places_.nodes[place] = *made;
    else if (places_.nodes.size() == place + 1)
      places_.nodes.pop_back();  // the place behind the others
    return result;
  }

  CUresult add_to(Node::Reader node, CUgraph graph, const CUgraphNode* before, size_t count,
                  CUcontext context, CUgraphNode* made, unsigned depth) {
    switch (node.which()) {
      case Node::EMPTY:
        return driver().cuGraphAddEmptyNode(made, graph, before, count);
      case Node::KERNEL: {
        KernelParams params;
        if (const CUresult result = params.take(parts_, context, node.getKernel());
            result != CUDA_SUCCESS)
          return result;
        if (const CUresult result =
                driver().cuGraphAddKernelNode_v2(made, graph, before, count, params.get());
            result != CUDA_SUCCESS)
          return result;
        return set_attributes(*made, node.getKernel());
      }
      case Node::UPDATABLE: {
        // It is there, with parameters that may have changed.
        const auto updatable = node.getUpdatable();
        if (updatable.getNumber() >= places_.updatable.size()) return CUDA_ERROR_INVALID_HANDLE;
        *made = std::exchange(places_.updatable[updatable.getNumber()], nullptr);
        require(*made != nullptr, "a node stands there twice");
        KernelParams params;
        CUresult result = params.take(parts_, context, updatable.getKernel());
        if (result == CUDA_SUCCESS) {
          forget_clusters(*made, updatable.getKernel());
          result = driver().cuGraphKernelNodeSetParams_v2(*made, params.get());
        }
        if (result == CUDA_SUCCESS) result = set_attributes(*made, updatable.getKernel());
        return result == CUDA_SUCCESS ? depend(graph, before, count, *made) : result;
      }
      case Node::COPY: {
        CUDA_MEMCPY3D copy;
        if (const CUresult result = read_copy(parts_, node.getCopy(), &copy);
            result != CUDA_SUCCESS)
          return result;
        return driver().cuGraphAddMemcpyNode(made, graph, before, count, &copy, context);
      }
      case Node::FILL: {
        const auto fill = read<CUDA_MEMSET_NODE_PARAMS>(node.getFill(), "a fill's wrong size");
        return driver().cuGraphAddMemsetNode(made, graph, before, count, &fill, context);
      }
      case Node::HOST: {
        auto host = std::make_shared<HostGate::Node>(HostGate::Node{.gate = &parts_.host_gate});
        const CUDA_HOST_NODE_PARAMS params{&HostGate::reached_in_graph, host.get()};
        places_.host_nodes.push_back(std::move(host));
        return driver().cuGraphAddHostNode(made, graph, before, count, &params);
      }
      case Node::CHILD:
        return add_child(node.getChild(), graph, before, count, made, depth);
      case Node::RECORD_EVENT: {
        CUevent event = nullptr;
        if (const CUresult result =
                find(parts_, rpc::HandleKind::kEvent, node.getRecordEvent(), &event);
            result != CUDA_SUCCESS)
          return result;
        parts_.event_waits.never_replaced(node.getRecordEvent());
        return driver().cuGraphAddEventRecordNode(made, graph, before, count, event);
      }
      case Node::WAIT_EVENT: {
        CUevent event = nullptr;
        if (const CUresult result =
                find(parts_, rpc::HandleKind::kEvent, node.getWaitEvent(), &event);
            result != CUDA_SUCCESS)
          return result;
        parts_.event_waits.never_replaced(node.getWaitEvent());
        return driver().cuGraphAddEventWaitNode(made, graph, before, count, event);
      }
      case Node::OPERATIONS: {
        const OperationParams params(node.getOperations(), context);
        if (driver().cuGraphAddBatchMemOpNode == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
        places_.waits = places_.waits || params.waits();
        return driver().cuGraphAddBatchMemOpNode(made, graph, before, count, &params.params);
      }
      case Node::ALLOCATION: {
        // It is there; what it depends on is new.
        // The client may have ended the graph meanwhile: then it has none.
        if (node.getAllocation() >= places_.allocations.size()) return CUDA_ERROR_INVALID_HANDLE;
        *made = std::exchange(places_.allocations[node.getAllocation()], nullptr);
        require(*made != nullptr, "an allocation stands there twice");
        return depend(graph, before, count, *made);
      }
      case Node::FREE:
        if (driver().cuGraphAddMemFreeNode == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
        places_.freed.push_back(node.getFree());
        return driver().cuGraphAddMemFreeNode(made, graph, before, count, node.getFree());
      case Node::CONDITIONAL:
        return add_conditional(node.getConditional(), graph, before, count, context, made, depth);
      case Node::MOVED_CHILD:
        return add_moved_child(node.getMovedChild(), graph, before, count, made, depth);
    }
    return CUDA_ERROR_NOT_SUPPORTED;  // of a later release
  }

  // The driver makes the graphs of the bodies.
  CUresult add_conditional(schema::graph::Conditional::Reader node, CUgraph graph,
                           const CUgraphNode* before, size_t count, CUcontext context,
                           CUgraphNode* made, unsigned depth) {
    if (driver().cuGraphAddNode_v2 == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional.handle = node.getHandle();
    params.conditional.type = static_cast<CUgraphConditionalNodeType>(node.getType());
    params.conditional.size = node.getBodies().size();
    params.conditional.ctx = context;
    CUresult result = driver().cuGraphAddNode_v2(made, graph, before, nullptr, count, &params);
    for (unsigned i = 0; i < params.conditional.size && result == CUDA_SUCCESS; ++i)
      result = build(node.getBodies()[i], params.conditional.phGraph_out[i], depth + 1);
    return result;
  }

  CUresult set_attributes(CUgraphNode made, schema::graph::Kernel::Reader kernel) {
    for (const CUlaunchAttribute& attribute : attributes_of(kernel)) {
      if (driver().cuGraphKernelNodeSetAttribute == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
      const CUresult result =
          driver().cuGraphKernelNodeSetAttribute(made, attribute.id, &attribute.value);
      if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
  }

  // The clusters that a node had before its grid changed need not fit into the new one.
  void forget_clusters(CUgraphNode node, schema::graph::Kernel::Reader kernel) {
    for (const CUlaunchAttribute& attribute : attributes_of(kernel)) {
      if (attribute.id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) continue;
      CUlaunchAttributeValue one{};
      one.clusterDim = {1, 1, 1};
      if (driver().cuGraphKernelNodeSetAttribute != nullptr)
        (void)driver().cuGraphKernelNodeSetAttribute(node, attribute.id, &one);
    }
  }

  // Of a node that was there before the others.
  CUresult depend(CUgraph graph, const CUgraphNode* before, size_t count, CUgraphNode node) {
    if (count == 0) return CUDA_SUCCESS;
    const std::vector<CUgraphNode> to(count, node);
    return add_edges(graph, before, to.data(), nullptr, count);
  }

  CUresult add_edges(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                     const CUgraphEdgeData* data, size_t count) {
    if (driver().cuGraphAddDependencies_v2 == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    return driver().cuGraphAddDependencies_v2(graph, from, to, data, count);
  }

  // The driver takes a copy of the child, whose nodes have the places.
  CUresult add_child(Nodes::Reader child, CUgraph graph, const CUgraphNode* before, size_t count,
                     CUgraphNode* made, unsigned depth) {
    CUgraph own = nullptr;
    if (const CUresult result = driver().cuGraphCreate(&own, 0); result != CUDA_SUCCESS)
      return result;
    const size_t first = places_.nodes.size();
    CUresult result = build(child, own, depth + 1);
    if (result == CUDA_SUCCESS)
      result = driver().cuGraphAddChildGraphNode(made, graph, before, count, own);
    CUgraph copy = nullptr;
    if (result == CUDA_SUCCESS) result = driver().cuGraphChildGraphNodeGetGraph(*made, &copy);
    if (result == CUDA_SUCCESS) result = follow(child, first, copy);
    (void)driver().cuGraphDestroy(own);
    return result;
  }

  // The driver takes the child itself.
  CUresult add_moved_child(schema::graph::MovedChild::Reader child, CUgraph graph,
                           const CUgraphNode* before, size_t count, CUgraphNode* made,
                           unsigned depth) {
    if (driver().cuGraphAddNode_v2 == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    std::shared_ptr<GraphBase> base;
    if (child.getGraph() != 0) {
      BaseHolder* holder = nullptr;
      const CUresult found = find(parts_, rpc::HandleKind::kGraph, child.getGraph(), &holder);
      if (found != CUDA_SUCCESS) return found;
      base = *holder;
    } else if (base = GraphBase::make(parts_); base == nullptr) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    std::vector<CUgraphNode> own;
    if (!base->begin_move(&own)) return CUDA_ERROR_NOT_SUPPORTED;
    std::swap(own, places_.allocations);
    CUresult result = build(child.getNodes(), base->get(), depth + 1);
    std::swap(own, places_.allocations);
    if (result != CUDA_SUCCESS) return result;
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_GRAPH;
    params.graph = {base->get(), CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE};
    result = driver().cuGraphAddNode_v2(made, graph, before, nullptr, count, &params);
    if (result != CUDA_SUCCESS) return result;
    base->moved();
    places_.moved.push_back(std::move(base));
    return CUDA_SUCCESS;
  }

  // The places from `first` on belong to the copy of the graph from now on.
  CUresult follow(Nodes::Reader description, size_t first, CUgraph copy) {
    size_t place = first;
    return follow_from(description, &place, copy);
  }
  CUresult follow_from(Nodes::Reader description, size_t* place, CUgraph copy) {
    for (const auto node : description.getNodes()) {
      CUgraphNode& known = places_.nodes[(*place)++];
      if (const CUresult result = driver().cuGraphNodeFindInClone(&known, known, copy);
          result != CUDA_SUCCESS)
        return result;
      require(!node.isMovedChild(), "a moved child in a copied one");
      if (!node.isChild()) continue;
      CUgraph inside = nullptr;
      CUresult result = driver().cuGraphChildGraphNodeGetGraph(known, &inside);
      if (result == CUDA_SUCCESS) result = follow_from(node.getChild(), place, inside);
      if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
  }

  const GraphParts& parts_;
  GraphPlaces& places_;
};

}  // namespace

uint32_t GraphPlaces::place_of(CUgraphNode node) const {
  const auto found = std::find(nodes.begin(), nodes.end(), node);
  return node == nullptr || found == nodes.end() ? kNone
                                                 : static_cast<uint32_t>(found - nodes.begin());
}

CUresult add_kernel(const GraphParts& parts, Node::Reader description, CUgraph graph,
                    CUgraphNode* node) {
  require(description.isKernel() && description.getDependencies().size() == 0,
          "not a kernel node alone");
  GraphPlaces places;
  return Builder(parts, places).add_alone(description, graph, node);
}

CUresult build_graph(const GraphParts& parts, Nodes::Reader description, CUgraph graph,
                     GraphPlaces* places) {
  return Builder(parts, *places).build(description, graph);
}

CUresult set_node(const GraphParts& parts, CUgraphExec exec, const GraphPlaces& places,
                  uint32_t place, Node::Reader description) {
  const DriverTable& driver = parts.core.driver;
  if (place >= places.nodes.size()) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNode const node = places.nodes[place];
  CUcontext context = nullptr;
  if (description.getContext() != 0) {
    context = parts.core.contexts.find(description.getContext());
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    (void)parts.core.contexts.enter(description.getContext());
  }
  switch (description.which()) {
    case Node::KERNEL: {
      KernelParams params;
      if (const CUresult result = params.take(parts, context, description.getKernel());
          result != CUDA_SUCCESS)
        return result;
      return driver.cuGraphExecKernelNodeSetParams_v2(exec, node, params.get());
    }
    case Node::COPY: {
      CUDA_MEMCPY3D copy;
      if (const CUresult result = read_copy(parts, description.getCopy(), &copy);
          result != CUDA_SUCCESS)
        return result;
      return driver.cuGraphExecMemcpyNodeSetParams(exec, node, &copy, context);
    }
    case Node::FILL: {
      const auto fill = read<CUDA_MEMSET_NODE_PARAMS>(description.getFill(), "a fill's wrong size");
      return driver.cuGraphExecMemsetNodeSetParams(exec, node, &fill, context);
    }
    case Node::RECORD_EVENT:
    case Node::WAIT_EVENT: {
      const bool records = description.isRecordEvent();
      const uint64_t id = records ? description.getRecordEvent() : description.getWaitEvent();
      CUevent event = nullptr;
      if (const CUresult result = find(parts, rpc::HandleKind::kEvent, id, &event);
          result != CUDA_SUCCESS)
        return result;
      parts.event_waits.never_replaced(id);
      return records ? driver.cuGraphExecEventRecordNodeSetEvent(exec, node, event)
                     : driver.cuGraphExecEventWaitNodeSetEvent(exec, node, event);
    }
    case Node::OPERATIONS: {
      const OperationParams params(description.getOperations(), context);
      if (driver.cuGraphExecBatchMemOpNodeSetParams == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
      return driver.cuGraphExecBatchMemOpNodeSetParams(exec, node, &params.params);
    }
    case Node::CHILD: {
      CUgraph child = nullptr;
      CUresult result = driver.cuGraphCreate(&child, 0);
      if (result != CUDA_SUCCESS) return result;
      GraphPlaces unused;
      result = build_graph(parts, description.getChild(), child, &unused);
      // Nobody would tell its host nodes which launch it is.
      if (result == CUDA_SUCCESS && !unused.host_nodes.empty()) result = CUDA_ERROR_NOT_SUPPORTED;
      if (result == CUDA_SUCCESS)
        result = driver.cuGraphExecChildGraphNodeSetParams(exec, node, child);
      (void)driver.cuGraphDestroy(child);
      return result;
    }
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

}  // namespace fargpu::server

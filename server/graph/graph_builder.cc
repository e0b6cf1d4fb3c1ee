#include "server/graph/graph_builder.h"

#include <algorithm>

#include "schema/support/cuda_rules.h"
#include "server/graph/leaf_nodes.h"
#include "server/graph/node_params.h"

namespace fargpu::server {
namespace {

using Nodes = schema::graph::Nodes;
using Node = schema::graph::Node;

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
    if (const CUresult result = enter_context(parts_, node, &context); result != CUDA_SUCCESS)
      return result;
    // Edges with data are made afterwards.
    const size_t count = edges.empty() ? before.size() : 0;
    const size_t place = places_.nodes.size();
    places_.nodes.push_back(nullptr);
    CUresult result =
        add_to(node, graph, count == 0 ? nullptr : before.data(), count, context, made, depth);
    if (result == CUDA_SUCCESS && !edges.empty()) {
      const std::vector<CUgraphNode> to(before.size(), *made);
      result = add_edges(driver(), graph, before.data(), to.data(), edges.data(), before.size());
    }
    if (result == CUDA_SUCCESS)
      places_.nodes[place] = *made;
    else if (places_.nodes.size() == place + 1)
      places_.nodes.pop_back();  // the place behind the others
    return result;
  }

  CUresult add_to(Node::Reader node, CUgraph graph, const CUgraphNode* before, size_t count,
                  CUcontext context, CUgraphNode* made, unsigned depth) {
    if (node.isChild()) return add_child(node.getChild(), graph, before, count, made, depth);
    if (node.isMovedChild())
      return add_moved_child(node.getMovedChild(), graph, before, count, made, depth);
    return add_leaf(parts_, places_, node, graph, before, count, context, made);
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

  // The driver takes the child itself. Here it has no allocations: those are a GraphBase's.
  CUresult add_moved_child(schema::graph::MovedChild::Reader child, CUgraph graph,
                           const CUgraphNode* before, size_t count, CUgraphNode* made,
                           unsigned depth) {
    if (driver().cuGraphAddNode_v2 == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    if (child.getGraph() != 0) return CUDA_ERROR_INVALID_HANDLE;
    CUgraph own = nullptr;
    CUresult result = driver().cuGraphCreate(&own, 0);
    if (result != CUDA_SUCCESS) return result;
    result = build(child.getNodes(), own, depth + 1);
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_GRAPH;
    params.graph = {own, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE};
    if (result == CUDA_SUCCESS)
      result = driver().cuGraphAddNode_v2(made, graph, before, nullptr, count, &params);
    if (result != CUDA_SUCCESS) (void)driver().cuGraphDestroy(own);
    return result;
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

CUresult build_graph(const GraphParts& parts, Nodes::Reader description, CUgraph graph,
                     GraphPlaces* places) {
  return Builder(parts, *places).build(description, graph);
}

CUresult set_node(const GraphParts& parts, CUgraphExec exec, CUgraphNode node,
                  Node::Reader description, GraphPlaces* child) {
  const DriverTable& driver = parts.core.driver;
  CUcontext context = nullptr;
  if (const CUresult result = enter_context(parts, description, &context); result != CUDA_SUCCESS)
    return result;
  switch (description.which()) {
    case Node::KERNEL: {
      KernelParams params;
      if (const CUresult result = params.take(parts, context, kernel_in(description.getKernel()));
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
      CUevent event = nullptr;
      if (const CUresult result = event_of(parts, description, &event); result != CUDA_SUCCESS)
        return result;
      return description.isRecordEvent()
                 ? driver.cuGraphExecEventRecordNodeSetEvent(exec, node, event)
                 : driver.cuGraphExecEventWaitNodeSetEvent(exec, node, event);
    }
    case Node::OPERATIONS: {
      const OperationParams params(description.getOperations(), context);
      if (driver.cuGraphExecBatchMemOpNodeSetParams == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
      return driver.cuGraphExecBatchMemOpNodeSetParams(exec, node, &params.params);
    }
    case Node::CHILD: {
      CUgraph graph = nullptr;
      CUresult result = driver.cuGraphCreate(&graph, 0);
      if (result != CUDA_SUCCESS) return result;
      result = build_graph(parts, description.getChild(), graph, child);
      if (result == CUDA_SUCCESS)
        result = driver.cuGraphExecChildGraphNodeSetParams(exec, node, graph);
      (void)driver.cuGraphDestroy(graph);
      return result;
    }
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

}  // namespace fargpu::server

#include "sim/graph/update.h"

#include <unordered_map>

#include "sim/object/api.h"

namespace fargpu::sim {
namespace {

CUgraphExecUpdateResultInfo found(CUgraphExecUpdateResult result, const Node* node = nullptr,
                                  const Node* from = nullptr) {
  CUgraphExecUpdateResultInfo info{};
  info.result = result;
  if (node != nullptr) info.errorNode = to_handle<CUgraphNode>(node->handle);
  if (from != nullptr) info.errorFromNode = to_handle<CUgraphNode>(from->handle);
  return info;
}

std::unordered_map<const Node*, size_t> places(const Graph& graph) {
  std::unordered_map<const Node*, size_t> places;
  for (size_t i = 0; i < graph.nodes.size(); ++i) places[graph.nodes[i].get()] = i;
  return places;
}

CUgraphExecUpdateResultInfo compare_edges(const Graph& own, const Graph& graph) {
  const auto own_places = places(own), other_places = places(graph);
  for (size_t i = 0; i < own.nodes.size(); ++i) {
    const Node &was = *own.nodes[i], &is = *graph.nodes[i];
    if (was.dependencies.size() != is.dependencies.size())
      return found(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, &is);
    for (size_t k = 0; k < was.dependencies.size(); ++k) {
      const Dependency &before = was.dependencies[k], &now = is.dependencies[k];
      if (own_places.at(before.node) != other_places.at(now.node) || !same(before.data, now.data))
        return found(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, &is, now.node);
    }
  }
  return found(CU_GRAPH_EXEC_UPDATE_SUCCESS);
}

}  // namespace

CUgraphExecUpdateResultInfo compare(const Graph& own, const Graph& graph) {
  if (own.nodes.size() != graph.nodes.size())
    return found(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  if (auto info = compare_edges(own, graph); info.result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
    return info;
  for (size_t i = 0; i < own.nodes.size(); ++i) {
    const Operation& was = *own.nodes[i]->operation;
    const Node& node = *graph.nodes[i];
    if (was.type() != node.operation->type())
      return found(CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, &node);
    const CUgraphExecUpdateResult result = was.accepts(*node.operation);
    if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return found(result, &node);
    for (size_t k = 0; k < was.bodies().size(); ++k) {
      const auto info = compare(*was.bodies()[k], *node.operation->bodies()[k]);
      if (info.result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return info;
    }
  }
  return found(CU_GRAPH_EXEC_UPDATE_SUCCESS);
}

void take_operations(Graph& own, const Graph& graph) {
  own.objects = graph.objects;
  for (size_t i = 0; i < own.nodes.size(); ++i) {
    Node& node = *own.nodes[i];
    const OperationPtr& next = graph.nodes[i]->operation;
    const auto bodies = node.operation->bodies();
    for (size_t k = 0; k < bodies.size(); ++k) take_operations(*bodies[k], *next->bodies()[k]);
    // The condition is the other graph's, whose handle its kernels have.
    if (next->type() == CU_GRAPH_NODE_TYPE_CONDITIONAL)
      node.operation = next->with_bodies({bodies.begin(), bodies.end()});
    else if (bodies.empty())
      node.operation = next;
  }
}

}  // namespace fargpu::sim

// Edges: the same one stands at both of its ends.
#include <algorithm>
#include <cstring>

#include "client/graph/graph.h"

namespace fargpu::client {
namespace {

CUgraphEdgeData data_at(const CUgraphEdgeData* data, size_t i) {
  return data == nullptr ? CUgraphEdgeData{} : data[i];
}

bool is_equal(const CUgraphEdgeData& a, const CUgraphEdgeData& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

// Only kernels have other ports than the default one, and no node has incoming ones.
bool is_possible(const GraphNode& from, const CUgraphEdgeData& data) {
  constexpr CUgraphEdgeData kPlain{};
  if (data.to_port != 0 ||
      !std::equal(std::begin(data.reserved), std::end(data.reserved), std::begin(kPlain.reserved)))
    return false;
  if (data.from_port == CU_GRAPH_KERNEL_NODE_PORT_DEFAULT)
    return data.type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT;
  return from.params.type() == CU_GRAPH_NODE_TYPE_KERNEL &&
         data.from_port <= CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER &&
         data.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
}

auto find_edge(std::vector<GraphEdge>& edges, const GraphNode& node) {
  return std::find_if(edges.begin(), edges.end(),
                      [&](const GraphEdge& edge) { return edge.node == &node; });
}

void remove(GraphNode& from, GraphNode& to) {
  from.after.erase(find_edge(from.after, to));
  to.before.erase(find_edge(to.before, from));
}

}  // namespace

CUresult add_edges(Graph& graph, std::span<const CUgraphNode> from, std::span<const CUgraphNode> to,
                   const CUgraphEdgeData* data) {
  for (size_t i = 0; i < from.size(); ++i) {
    GraphNode* const begin = find_node(from[i]);
    GraphNode* const end = find_node(to[i]);
    const CUgraphEdgeData edge = data_at(data, i);
    const bool possible = begin != nullptr && end != nullptr && begin != end &&
                          begin->graph == &graph && end->graph == &graph &&
                          is_possible(*begin, edge) &&
                          find_edge(begin->after, *end) == begin->after.end();
    if (!possible) {
      while (i-- > 0) remove(*find_node(from[i]), *find_node(to[i]));
      return CUDA_ERROR_INVALID_VALUE;
    }
    begin->after.push_back({end, edge});
    end->before.push_back({begin, edge});
  }
  return CUDA_SUCCESS;
}

CUresult remove_edges(Graph& graph, std::span<const CUgraphNode> from,
                      std::span<const CUgraphNode> to, const CUgraphEdgeData* data) {
  for (size_t i = 0; i < from.size(); ++i) {
    GraphNode* const begin = find_node(from[i]);
    GraphNode* const end = find_node(to[i]);
    if (begin == nullptr || end == nullptr || begin->graph != &graph || end->graph != &graph)
      return CUDA_ERROR_INVALID_VALUE;
    const auto known = find_edge(begin->after, *end);
    if (known == begin->after.end() || !is_equal(known->data, data_at(data, i)))
      return CUDA_ERROR_INVALID_VALUE;
    for (size_t earlier = 0; earlier < i; ++earlier)
      if (from[earlier] == from[i] && to[earlier] == to[i]) return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < from.size(); ++i) remove(*find_node(from[i]), *find_node(to[i]));
  return CUDA_SUCCESS;
}

}  // namespace fargpu::client

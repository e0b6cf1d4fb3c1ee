// Edges: the same one stands at both of its ends.
#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

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
bool is_possible(const GraphNode& from, const GraphNode& to, const CUgraphEdgeData& data,
                 EdgesOf whose) {
  constexpr CUgraphEdgeData kPlain{};
  if (data.to_port != 0 ||
      !std::equal(std::begin(data.reserved), std::end(data.reserved), std::begin(kPlain.reserved)))
    return false;
  if (data.from_port == CU_GRAPH_KERNEL_NODE_PORT_DEFAULT)
    return data.type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT;
  if (from.params.type() != CU_GRAPH_NODE_TYPE_KERNEL ||
      data.from_port > CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER)
    return false;
  if (data.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC)
    return to.params.type() == CU_GRAPH_NODE_TYPE_KERNEL || whose == EdgesOf::kCapture;
  return data.type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT &&
         data.from_port == CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER;
}

// nullptr: there is none. A node may have very many edges, but rarely both ends do.
const CUgraphEdgeData* find_edge(const GraphNode& from, const GraphNode& to) {
  const bool forward = from.after.size() < to.before.size();
  const std::vector<GraphEdge>& edges = forward ? from.after : to.before;
  const GraphNode* const other = forward ? &to : &from;
  const auto found = std::find_if(edges.begin(), edges.end(),
                                  [&](const GraphEdge& edge) { return edge.node == other; });
  return found == edges.end() ? nullptr : &found->data;
}

}  // namespace

CUresult add_edges(Graph& graph, std::span<const CUgraphNode> from, std::span<const CUgraphNode> to,
                   const CUgraphEdgeData* data, EdgesOf whose) {
  for (size_t i = 0; i < from.size(); ++i) {
    GraphNode* const begin = find_node(from[i]);
    GraphNode* const end = find_node(to[i]);
    const CUgraphEdgeData edge = data_at(data, i);
    const bool possible = begin != nullptr && end != nullptr && begin != end &&
                          begin->graph == &graph && end->graph == &graph &&
                          is_possible(*begin, *end, edge, whose) &&
                          find_edge(*begin, *end) == nullptr;
    if (!possible) {
      while (i-- > 0) {
        find_node(from[i])->after.pop_back();
        find_node(to[i])->before.pop_back();
      }
      return CUDA_ERROR_INVALID_VALUE;
    }
    begin->after.push_back({end, edge});
    end->before.push_back({begin, edge});
  }
  return CUDA_SUCCESS;
}

CUresult remove_edges(Graph& graph, std::span<const CUgraphNode> from,
                      std::span<const CUgraphNode> to, const CUgraphEdgeData* data) {
  std::vector<std::pair<GraphNode*, GraphNode*>> edges;
  edges.reserve(from.size());
  for (size_t i = 0; i < from.size(); ++i) {
    GraphNode* const begin = find_node(from[i]);
    GraphNode* const end = find_node(to[i]);
    if (begin == nullptr || end == nullptr || begin->graph != &graph || end->graph != &graph)
      return CUDA_ERROR_INVALID_VALUE;
    const CUgraphEdgeData* const known = find_edge(*begin, *end);
    // What is said of a plain edge does not count; where nothing is said, any edge goes.
    if (known == nullptr ||
        (data != nullptr && !is_equal(*known, {}) && !is_equal(*known, data[i])))
      return CUDA_ERROR_INVALID_VALUE;
    edges.emplace_back(begin, end);
  }
  std::sort(edges.begin(), edges.end());
  if (std::adjacent_find(edges.begin(), edges.end()) != edges.end())
    return CUDA_ERROR_INVALID_VALUE;
  const auto goes = [&](GraphNode* begin, GraphNode* end) {
    return std::binary_search(edges.begin(), edges.end(), std::pair(begin, end));
  };
  std::set<GraphNode*> begins, ends;
  for (const auto& [begin, end] : edges) {
    begins.insert(begin);
    ends.insert(end);
  }
  for (GraphNode* const node : begins)
    std::erase_if(node->after, [&](const GraphEdge& edge) { return goes(node, edge.node); });
  for (GraphNode* const node : ends)
    std::erase_if(node->before, [&](const GraphEdge& edge) { return goes(edge.node, node); });
  return CUDA_SUCCESS;
}

}  // namespace fargpu::client

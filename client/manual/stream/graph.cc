// Graphs: all of this is the client's own; nothing is sent.
#include "client/graph/graph.h"

#include <algorithm>
#include <vector>

#include "client/capture/captures.h"
#include "client/graph/dot.h"
#include "generated/client/manual.h"

namespace fargpu::client {
namespace {

// The usual form of answers: with no array the count, else what there is room for, filled up with
// nothing.
template <typename Put>
CUresult answer(size_t have, bool wanted, size_t* count, Put&& put) {
  if (!wanted) {
    *count = have;
    return CUDA_SUCCESS;
  }
  const size_t room = *count;
  if (room == 0 && have != 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < room; ++i) put(i, i < have);
  *count = std::min(room, have);
  return CUDA_SUCCESS;
}

CUresult answer_nodes(const std::vector<GraphNode*>& nodes, CUgraphNode* out, size_t* count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return answer(nodes.size(), out != nullptr, count,
                [&](size_t i, bool there) { out[i] = there ? nodes[i]->handle() : nullptr; });
}

// Without room for their data, edges that have some cannot be told.
CUresult answer_edges(const std::vector<GraphEdge>& edges, CUgraphNode* out, CUgraphEdgeData* data,
                      size_t* count) {
  if (count == nullptr || (out == nullptr && data != nullptr)) return CUDA_ERROR_INVALID_VALUE;
  const bool plain = std::all_of(edges.begin(), edges.end(),
                                 [](const GraphEdge& edge) { return says_nothing(edge.data); });
  if (out != nullptr && data == nullptr && !plain) return CUDA_ERROR_LOSSY_QUERY;
  return answer(edges.size(), out != nullptr, count, [&](size_t i, bool there) {
    out[i] = there ? edges[i].node->handle() : nullptr;
    if (data != nullptr) data[i] = there ? edges[i].data : CUgraphEdgeData{};
  });
}

std::span<const CUgraphNode> nodes_of(const CUgraphNode* nodes, size_t count) {
  return {nodes, nodes == nullptr ? 0 : count};
}

}  // namespace

CUresult manual_cuGraphCreate(CUgraph* phGraph, unsigned int flags) {
  if (phGraph == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const GraphLock lock;
  Graph* graph = nullptr;
  const CUresult result = make_graph(&graph);
  if (result == CUDA_SUCCESS) *phGraph = graph->handle();
  return result;
}

CUresult manual_cuGraphDestroy(CUgraph hGraph) {
  const GraphLock lock;
  Graph* const graph = find_graph(hGraph);
  if (graph == nullptr || graph->owner != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (capture::captures_into(*graph)) return CUDA_ERROR_ILLEGAL_STATE;
  end_graph(*graph);
  return CUDA_SUCCESS;
}

CUresult manual_cuGraphClone(CUgraph* phGraphClone, CUgraph originalGraph) {
  const GraphLock lock;
  const Graph* const original = find_graph(originalGraph);
  if (phGraphClone == nullptr || original == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Graph* clone = nullptr;
  const CUresult result = clone_graph(*original, &clone);
  if (result == CUDA_SUCCESS) *phGraphClone = clone->handle();
  return result;
}

CUresult manual_cuGraphNodeFindInClone(CUgraphNode* phNode, CUgraphNode hOriginalNode,
                                       CUgraph hClonedGraph) {
  const GraphLock lock;
  const Graph* const clone = find_graph(hClonedGraph);
  if (phNode == nullptr || clone == nullptr || hOriginalNode == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  const auto id = reinterpret_cast<uint64_t>(hOriginalNode);
  const auto found = std::find_if(clone->nodes.begin(), clone->nodes.end(),
                                  [&](const GraphNode* node) { return node->clone_of == id; });
  if (found == clone->nodes.end()) return CUDA_ERROR_INVALID_VALUE;
  *phNode = (*found)->handle();
  return CUDA_SUCCESS;
}

CUresult manual_cuGraphGetNodes(CUgraph hGraph, CUgraphNode* nodes, size_t* numNodes) {
  const GraphLock lock;
  const Graph* const graph = find_graph(hGraph);
  return graph == nullptr ? CUDA_ERROR_INVALID_VALUE : answer_nodes(graph->nodes, nodes, numNodes);
}

CUresult manual_cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode* rootNodes, size_t* numRootNodes) {
  const GraphLock lock;
  const Graph* const graph = find_graph(hGraph);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphNode*> roots;
  std::copy_if(graph->nodes.begin(), graph->nodes.end(), std::back_inserter(roots),
               [](const GraphNode* node) { return node->before.empty(); });
  return answer_nodes(roots, rootNodes, numRootNodes);
}

CUresult manual_cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to,
                                   CUgraphEdgeData* edgeData, size_t* numEdges) {
  const GraphLock lock;
  const Graph* const graph = find_graph(hGraph);
  if (graph == nullptr || numEdges == nullptr || (from == nullptr) != (to == nullptr) ||
      (from == nullptr && edgeData != nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphEdge> edges;
  std::vector<CUgraphNode> begins;
  for (const GraphNode* const node : graph->nodes) {
    edges.insert(edges.end(), node->after.begin(), node->after.end());
    begins.resize(edges.size(), node->handle());
  }
  const size_t room = *numEdges;
  const CUresult result = answer_edges(edges, to, edgeData, numEdges);
  if (result != CUDA_SUCCESS || from == nullptr) return result;
  for (size_t i = 0; i < room; ++i) from[i] = i < begins.size() ? begins[i] : nullptr;
  return CUDA_SUCCESS;
}

CUresult manual_cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode* dependencies,
                                              CUgraphEdgeData* edgeData, size_t* numDependencies) {
  const GraphLock lock;
  const GraphNode* const node = find_node(hNode);
  return node == nullptr ? CUDA_ERROR_INVALID_VALUE
                         : answer_edges(node->before, dependencies, edgeData, numDependencies);
}

CUresult manual_cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode* dependentNodes,
                                                CUgraphEdgeData* edgeData,
                                                size_t* numDependentNodes) {
  const GraphLock lock;
  const GraphNode* const node = find_node(hNode);
  return node == nullptr ? CUDA_ERROR_INVALID_VALUE
                         : answer_edges(node->after, dependentNodes, edgeData, numDependentNodes);
}

CUresult manual_cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode* from,
                                          const CUgraphNode* to, const CUgraphEdgeData* edgeData,
                                          size_t numDependencies) {
  const GraphLock lock;
  Graph* const graph = find_graph(hGraph);
  if (graph == nullptr || (numDependencies != 0 && (from == nullptr || to == nullptr)))
    return CUDA_ERROR_INVALID_VALUE;
  return add_edges(*graph, nodes_of(from, numDependencies), nodes_of(to, numDependencies),
                   edgeData);
}

CUresult manual_cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode* from,
                                             const CUgraphNode* to, const CUgraphEdgeData* edgeData,
                                             size_t numDependencies) {
  const GraphLock lock;
  Graph* const graph = find_graph(hGraph);
  if (graph == nullptr || (numDependencies != 0 && (from == nullptr || to == nullptr)))
    return CUDA_ERROR_INVALID_VALUE;
  if (graph->has_memory) return CUDA_ERROR_NOT_SUPPORTED;
  return remove_edges(*graph, nodes_of(from, numDependencies), nodes_of(to, numDependencies),
                      edgeData);
}

CUresult manual_cuGraphDestroyNode(CUgraphNode hNode) {
  const GraphLock lock;
  GraphNode* const node = find_node(hNode);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (node->graph->has_memory || node->params.device_node() != 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (capture::captures_into(*node->graph)) return CUDA_ERROR_ILLEGAL_STATE;
  end_node(*node);
  return CUDA_SUCCESS;
}

CUresult manual_cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType* type) {
  const GraphLock lock;
  const GraphNode* const node = find_node(hNode);
  if (node == nullptr || type == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *type = node->params.type();
  return CUDA_SUCCESS;
}

CUresult manual_cuGraphDebugDotPrint(CUgraph hGraph, const char* path, unsigned int flags) {
  const GraphLock lock;
  const Graph* const graph = find_graph(hGraph);
  if (graph == nullptr || path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return write_dot(*graph, path, flags);
}

}  // namespace fargpu::client

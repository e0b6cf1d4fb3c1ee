// Graphs: creation, copies, nodes and edges.
#include <algorithm>

#include "sim/graph/api.h"
#include "sim/graph/kernel_node.h"

using namespace fargpu::sim;

namespace {

// With memory, of its own or of a child: bodies of conditions do not count.
bool keeps_nodes(const Graph& graph) {
  return std::ranges::any_of(graph.nodes, [](const auto& node) {
    const CUgraphNodeType type = node->operation->type();
    return type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
           (type == CU_GRAPH_NODE_TYPE_GRAPH && has_memory_nodes(*node->operation->bodies()[0]));
  });
}

// Returns dependencies or dependent nodes. CUDA_ERROR_LOSSY_QUERY: data that is not asked for is
// not plain.
CUresult return_edges(const std::vector<Dependency>& list, CUgraphNode* nodes,
                      CUgraphEdgeData* data, size_t* count) {
  if (count == nullptr || (nodes == nullptr && data != nullptr)) return CUDA_ERROR_INVALID_VALUE;
  const bool lossless = data != nullptr || std::ranges::all_of(list, [](const auto& edge) {
                          return plain(edge.data);
                        });
  if (nodes != nullptr && !lossless) return CUDA_ERROR_LOSSY_QUERY;
  const size_t room = *count;
  if (nodes != nullptr && room == 0 && !list.empty()) return CUDA_ERROR_INVALID_VALUE;
  return_list(list, nodes, room, [](const Dependency& edge) { return handle_of(*edge.node); });
  for (size_t i = 0; data != nullptr && i < std::min(room, list.size()); ++i)
    data[i] = list[i].data;
  *count = nodes == nullptr ? list.size() : std::min(room, list.size());
  return CUDA_SUCCESS;
}

CUresult return_nodes(const std::vector<std::shared_ptr<Node>>& list, CUgraphNode* nodes,
                      size_t* count) {
  if (count == nullptr || (nodes != nullptr && *count == 0 && !list.empty()))
    return CUDA_ERROR_INVALID_VALUE;
  return_list(list, nodes, *count, [](const auto& node) { return handle_of(*node); });
  *count = nodes == nullptr ? list.size() : std::min(*count, list.size());
  return CUDA_SUCCESS;
}

// Calls change(Node& from, Node& to, data) for each pair; the pairs before one that is refused stay
// changed.
template <typename Change>
CUresult change_edges(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                      const CUgraphEdgeData* data, size_t count, Change&& change) {
  return with_graph(handle, [&](Graph& graph) -> CUresult {
    if (count == 0) return CUDA_SUCCESS;
    if (from == nullptr || to == nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; ++i) {
      const auto first = find_node(from[i]), second = find_node(to[i]);
      if (!first || !second || first->graph != &graph || second->graph != &graph)
        return CUDA_ERROR_INVALID_VALUE;
      const CUresult result =
          change(*first, *second, data != nullptr ? data[i] : CUgraphEdgeData{});
      if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
  });
}

}  // namespace

CUresult CUDAAPI cuGraphCreate(CUgraph* phGraph, unsigned int flags) {
  return with_graphs([&]() -> CUresult {
    if (phGraph == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    *phGraph = handle_of(*make_graph());
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphDestroy(CUgraph hGraph) {
  return with_graph(hGraph, [](Graph& graph) -> CUresult {
    if (graph.embedded) return CUDA_ERROR_INVALID_VALUE;
    if (graph.capturing) return CUDA_ERROR_ILLEGAL_STATE;
    end_graph(graph);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphClone(CUgraph* phGraphClone, CUgraph originalGraph) {
  return with_graph(originalGraph, [&](Graph& graph) -> CUresult {
    if (phGraphClone == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (has_memory_nodes(graph) || !graph.conditionals.empty() || graph.conditional_body ||
        has_device_nodes(graph))
      return CUDA_ERROR_NOT_SUPPORTED;
    *phGraphClone = handle_of(*copy_graph(graph, true));
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphNodeFindInClone(CUgraphNode* phNode, CUgraphNode hOriginalNode,
                                        CUgraph hClonedGraph) {
  return with_graph(hClonedGraph, [&](Graph& clone) -> CUresult {
    const auto original = find_node(hOriginalNode);
    if (phNode == nullptr || !original || clone.original != original->graph->handle)
      return CUDA_ERROR_INVALID_VALUE;
    for (const auto& node : clone.nodes) {
      if (node->original != original->handle) continue;
      *phNode = handle_of(*node);
      return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult CUDAAPI cuGraphGetNodes(CUgraph hGraph, CUgraphNode* nodes, size_t* numNodes) {
  return with_graph(hGraph,
                    [&](Graph& graph) { return return_nodes(graph.nodes, nodes, numNodes); });
}

CUresult CUDAAPI cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode* rootNodes, size_t* numRootNodes) {
  return with_graph(hGraph, [&](Graph& graph) {
    std::vector<std::shared_ptr<Node>> roots;
    std::ranges::copy_if(graph.nodes, std::back_inserter(roots),
                         [](const auto& node) { return node->dependencies.empty(); });
    return return_nodes(roots, rootNodes, numRootNodes);
  });
}

CUresult CUDAAPI cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to,
                                    CUgraphEdgeData* edgeData, size_t* numEdges) {
  return with_graph(hGraph, [&](Graph& graph) -> CUresult {
    if ((from == nullptr) != (to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
    std::vector<Dependency> targets, sources;
    for (const auto& node : graph.nodes) {
      for (const auto& [source, data] : node->dependencies) {
        sources.push_back({source, data});
        targets.push_back({node.get(), data});
      }
    }
    const size_t room = numEdges != nullptr ? *numEdges : 0;
    const CUresult result = return_edges(sources, from, edgeData, numEdges);
    if (result != CUDA_SUCCESS) return result;
    return_list(targets, to, room, [](const Dependency& edge) { return handle_of(*edge.node); });
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphGetEdges(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to,
                                 size_t* numEdges) {
  return cuGraphGetEdges_v2(hGraph, from, to, nullptr, numEdges);
}

CUresult CUDAAPI cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode* dependencies,
                                               CUgraphEdgeData* edgeData, size_t* numDependencies) {
  return with_node(hNode, [&](Node& node) {
    return return_edges(node.dependencies, dependencies, edgeData, numDependencies);
  });
}

CUresult CUDAAPI cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode* dependencies,
                                            size_t* numDependencies) {
  return cuGraphNodeGetDependencies_v2(hNode, dependencies, nullptr, numDependencies);
}

CUresult CUDAAPI cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode* dependentNodes,
                                                 CUgraphEdgeData* edgeData,
                                                 size_t* numDependentNodes) {
  return with_node(hNode, [&](Node& node) {
    return return_edges(node.dependents, dependentNodes, edgeData, numDependentNodes);
  });
}

CUresult CUDAAPI cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode* dependentNodes,
                                              size_t* numDependentNodes) {
  return cuGraphNodeGetDependentNodes_v2(hNode, dependentNodes, nullptr, numDependentNodes);
}

CUresult CUDAAPI cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode* from,
                                           const CUgraphNode* to, const CUgraphEdgeData* edgeData,
                                           size_t numDependencies) {
  return change_edges(hGraph, from, to, edgeData, numDependencies, add_edge);
}

CUresult CUDAAPI cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode* from,
                                        const CUgraphNode* to, size_t numDependencies) {
  return cuGraphAddDependencies_v2(hGraph, from, to, nullptr, numDependencies);
}

CUresult CUDAAPI cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode* from,
                                              const CUgraphNode* to,
                                              const CUgraphEdgeData* edgeData,
                                              size_t numDependencies) {
  return change_edges(hGraph, from, to, edgeData, numDependencies,
                      [&](Node& first, Node& second, const CUgraphEdgeData& data) -> CUresult {
                        if (keeps_nodes(*first.graph)) return CUDA_ERROR_NOT_SUPPORTED;
                        return remove_edge(first, second, edgeData != nullptr ? &data : nullptr);
                      });
}

CUresult CUDAAPI cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode* from,
                                           const CUgraphNode* to, size_t numDependencies) {
  return cuGraphRemoveDependencies_v2(hGraph, from, to, nullptr, numDependencies);
}

CUresult CUDAAPI cuGraphDestroyNode(CUgraphNode hNode) {
  return with_node(hNode, [](Node& node) -> CUresult {
    if (keeps_nodes(*node.graph) || device_node(*node.operation) != nullptr)
      return CUDA_ERROR_NOT_SUPPORTED;
    if (node.graph->capturing) return CUDA_ERROR_ILLEGAL_STATE;
    remove_node(node);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType* type) {
  return with_node(hNode, [&](Node& node) -> CUresult {
    if (type == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *type = node.operation->type();
    return CUDA_SUCCESS;
  });
}

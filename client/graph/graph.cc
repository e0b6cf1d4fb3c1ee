#include "client/graph/graph.h"

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <utility>

#include "client/graph/user_object.h"
#include "client/process/process.h"
#include "client/process/session.h"
#include "client/process/tables.h"

namespace fargpu::client {
namespace {

// Of this thread.
thread_local GraphLock* held = nullptr;

HandleTable& handles() { return Process::get().tables()->handles; }

template <typename Record>
CUresult make(rpc::HandleKind kind, Record** record) {
  const uint64_t id = handles().reserve(kind);
  if (id == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  auto made = std::make_unique<Record>();
  made->id = id;
  made->session = Process::get().session(0);
  *record = static_cast<Record*>(handles().publish(std::move(made)));
  return CUDA_SUCCESS;
}

template <typename Record>
Record* find(rpc::HandleKind kind, const void* handle) {
  return static_cast<Record*>(handles().find(kind, reinterpret_cast<uint64_t>(handle)));
}

void remove_from(std::vector<GraphEdge>& edges, const GraphNode& node) {
  std::erase_if(edges, [&](const GraphEdge& edge) { return edge.node == &node; });
}

}  // namespace

GraphLock::GraphLock() {
  static auto& mutex = *new std::mutex;  // calls come until the very end of the process
  lock_ = std::unique_lock(mutex);
  held = this;
}

void GraphLock::unlock() {
  if (!lock_.owns_lock()) return;
  held = nullptr;
  lock_.unlock();
  for (const auto& [object, count] : released_) release(object, count);
}

void GraphLock::release_later(CUuserObject object, unsigned count) {
  held->released_.emplace_back(object, count);
}

Graph* find_graph(CUgraph graph) { return find<Graph>(rpc::HandleKind::kGraph, graph); }
GraphNode* find_node(CUgraphNode node) {
  return find<GraphNode>(rpc::HandleKind::kGraphNode, node);
}

CUresult make_graph(Graph** graph) { return make(rpc::HandleKind::kGraph, graph); }

bool has_condition(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const GraphNode* node) {
    return node->params.type() == CU_GRAPH_NODE_TYPE_CONDITIONAL;
  });
}

CUresult clone_graph(const Graph& original, Graph** clone) {
  // The copy would need memory and conditions of its own.
  if (original.base != nullptr || original.has_memory || has_condition(original) ||
      is_body(original))
    return CUDA_ERROR_NOT_SUPPORTED;
  Graph* made = nullptr;
  if (const CUresult result = make_graph(&made); result != CUDA_SUCCESS) return result;
  made->clone_of = original.id;
  std::unordered_map<const GraphNode*, GraphNode*> twin;
  CUresult result = CUDA_SUCCESS;
  for (const GraphNode* const node : original.nodes) {
    GraphNode* copy = nullptr;
    result = add_node(*made, {}, nullptr, node->params, &copy);
    if (result == CUDA_SUCCESS) {
      copy->clone_of = node->id;
      if (!node->inside.empty()) result = give_child(*copy, *node->inside[0]);
    }
    if (result != CUDA_SUCCESS) break;
    twin[node] = copy;
  }
  if (result != CUDA_SUCCESS) {
    end_graph(*made);
    return result;
  }
  for (const auto& [node, copy] : twin) {
    for (const GraphEdge& edge : node->before)
      copy->before.push_back({twin.at(edge.node), edge.data});
    for (const GraphEdge& edge : node->after)
      copy->after.push_back({twin.at(edge.node), edge.data});
  }
  for (const auto& [object, count] : original.user_objects) {
    retain(object, count);
    made->user_objects[object] = count;
  }
  *clone = made;
  return CUDA_SUCCESS;
}

void clear_graph(Graph& graph) {
  while (!graph.nodes.empty()) {
    GraphNode& last = *graph.nodes.back();
    graph.nodes.pop_back();
    for (Graph* const inside : last.inside) end_graph(*inside);
    node_ends(last);
    handles().erase(last.id);
  }
}

void end_graph(Graph& graph) {
  clear_graph(graph);
  for (const auto& [object, count] : graph.user_objects) GraphLock::release_later(object, count);
  graph.user_objects.clear();
  end_base(graph);
  handles().erase(graph.id);
}

CUresult add_node(Graph& graph, std::span<const CUgraphNode> before, const CUgraphEdgeData* data,
                  NodeParams params, GraphNode** node, EdgesOf whose) {
  GraphNode* made = nullptr;
  if (const CUresult result = make(rpc::HandleKind::kGraphNode, &made); result != CUDA_SUCCESS)
    return result;
  made->graph = &graph;
  made->parent = graph.id;
  made->params = std::move(params);
  graph.nodes.push_back(made);
  const std::vector<CUgraphNode> to(before.size(), made->handle());
  if (const CUresult result = add_edges(graph, before, to, data, whose); result != CUDA_SUCCESS) {
    end_node(*made);
    return result;
  }
  *node = made;
  return CUDA_SUCCESS;
}

void end_node(GraphNode& node) {
  for (const GraphEdge& edge : node.before) remove_from(edge.node->after, node);
  for (const GraphEdge& edge : node.after) remove_from(edge.node->before, node);
  for (Graph* const inside : node.inside) end_graph(*inside);
  node_ends(node);
  std::erase(node.graph->nodes, &node);
  handles().erase(node.id);
}

CUresult give_child(GraphNode& node, const Graph& graph) {
  Graph* child = nullptr;
  if (const CUresult result = clone_graph(graph, &child); result != CUDA_SUCCESS) return result;
  put_child(node, *child);
  return CUDA_SUCCESS;
}

void put_child(GraphNode& node, Graph& child) {
  for (Graph* const inside : node.inside) end_graph(*inside);
  node.inside = {&child};
  child.owner = &node;
  node.params.set_child(child.handle());
}

}  // namespace fargpu::client

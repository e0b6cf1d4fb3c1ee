#include "sim/graph/graph.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "sim/object/api.h"

namespace fargpu::sim {
namespace {

Node* node_of(CUgraphNode handle) { return find_node(handle).get(); }

// Only kernels have ports, and only between kernels a dependency may be programmatic.
bool valid_data(const Operation& from, CUgraphNodeType to, const CUgraphEdgeData& data) {
  const auto* reserved = std::begin(data.reserved);
  if (data.to_port != 0 || std::any_of(reserved, std::end(data.reserved), [](auto b) { return b; }))
    return false;
  if (data.from_port == CU_GRAPH_KERNEL_NODE_PORT_DEFAULT)
    return data.type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT;
  if (from.type() != CU_GRAPH_NODE_TYPE_KERNEL) return false;
  if (data.from_port > CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER) return false;
  if (data.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC) return to == CU_GRAPH_NODE_TYPE_KERNEL;
  return data.type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT &&
         data.from_port == CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER;
}

void name(const std::shared_ptr<Node>& node) {
  node->handle = Driver::get().registry().add(node, 0);
}

void connect(Node& to, std::vector<Dependency> dependencies) {
  for (const Dependency& dependency : dependencies)
    dependency.node->dependents.push_back({&to, dependency.data});
  to.dependencies = std::move(dependencies);
}

void erase(std::vector<Dependency>* list, const Node* node) {
  std::erase_if(*list, [node](const Dependency& entry) { return entry.node == node; });
}

Dependency* find(std::vector<Dependency>* list, const Node* node) {
  const auto it =
      std::ranges::find_if(*list, [node](const auto& entry) { return entry.node == node; });
  return it == list->end() ? nullptr : &*it;
}

}  // namespace

std::mutex& graph_mutex() {
  static auto* mutex = new std::mutex;  // never destroyed: threads may outlive main
  return *mutex;
}

bool same(const CUgraphEdgeData& a, const CUgraphEdgeData& b) {
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}

bool plain(const CUgraphEdgeData& data) { return same(data, CUgraphEdgeData{}); }

std::shared_ptr<Node> find_node(CUgraphNode handle) {
  auto node = Driver::get().registry().find<Node>(handle);
  return node && node->graph != nullptr ? node : nullptr;
}

std::shared_ptr<Graph> find_graph(CUgraph handle) {
  return Driver::get().registry().find<Graph>(handle);
}

std::shared_ptr<Graph> make_graph() {
  auto graph = std::make_shared<Graph>();
  graph->handle = Driver::get().registry().add(graph, 0);
  return graph;
}

void end_graph(Graph& graph) {
  Registry& registry = Driver::get().registry();
  if (graph.handle != 0) registry.remove<Graph>(graph.handle);
  for (const auto& node : graph.nodes) {
    node->graph = nullptr;
    if (node->handle != 0) registry.remove<Node>(node->handle);
    for (const auto& body : node->operation->bodies()) end_graph(*body);
  }
}

void end_captured(Graph& graph) {
  graph.capturing = false;
  if (!graph.embedded) return end_graph(graph);
  while (!graph.nodes.empty()) remove_node(*graph.nodes.back());
}

std::shared_ptr<Graph> copy_graph(const Graph& graph, bool named) {
  auto copy = named ? make_graph() : std::make_shared<Graph>();
  copy->original = graph.handle;
  copy->objects = graph.objects;
  copy->conditionals = graph.conditionals;
  std::unordered_map<const Node*, Node*> copies;
  for (const auto& node : graph.nodes) {
    auto made = std::make_shared<Node>();
    if (named) name(made);
    made->original = node->handle;
    made->graph = copy.get();
    made->operation = node->operation;
    std::vector<std::shared_ptr<Graph>> bodies;
    for (const auto& body : node->operation->bodies()) {
      bodies.push_back(copy_graph(*body, named));
      bodies.back()->embedded = true;
    }
    if (!bodies.empty()) made->operation = node->operation->with_bodies(bodies);
    copies[node.get()] = made.get();
    copy->nodes.push_back(std::move(made));
  }
  for (const auto& node : graph.nodes) {
    Node* to = copies[node.get()];
    for (const auto& [from, data] : node->dependencies)
      to->dependencies.push_back({copies[from], data});
    for (const auto& [dependent, data] : node->dependents)
      to->dependents.push_back({copies[dependent], data});
  }
  return copy;
}

CUresult resolve_dependencies(const Graph& graph, CUgraphNodeType to, const CUgraphNode* handles,
                              const CUgraphEdgeData* data, size_t count,
                              std::vector<Dependency>* dependencies) {
  if (count != 0 && handles == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    Node* node = node_of(handles[i]);
    const CUgraphEdgeData edge = data != nullptr ? data[i] : CUgraphEdgeData{};
    if (node == nullptr || node->graph != &graph || find(dependencies, node) != nullptr ||
        !valid_data(*node->operation, to, edge)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    dependencies->push_back({node, edge});
  }
  return CUDA_SUCCESS;
}

std::shared_ptr<Node> add_node(Graph& graph, OperationPtr operation,
                               std::vector<Dependency> dependencies) {
  auto node = std::make_shared<Node>();
  node->graph = &graph;
  node->operation = std::move(operation);
  name(node);
  connect(*node, std::move(dependencies));
  graph.nodes.push_back(node);
  return node;
}

CUresult add_edge(Node& from, Node& to, const CUgraphEdgeData& data) {
  if (&from == &to || find(&to.dependencies, &from) != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!valid_data(*from.operation, to.operation->type(), data)) return CUDA_ERROR_INVALID_VALUE;
  to.dependencies.push_back({&from, data});
  from.dependents.push_back({&to, data});
  return CUDA_SUCCESS;
}

CUresult remove_edge(Node& from, Node& to, const CUgraphEdgeData* data) {
  const Dependency* found = find(&to.dependencies, &from);
  if (found == nullptr || (data != nullptr && !plain(found->data) && !same(found->data, *data)))
    return CUDA_ERROR_INVALID_VALUE;
  erase(&to.dependencies, &from);
  erase(&from.dependents, &to);
  return CUDA_SUCCESS;
}

void remove_node(Node& node) {
  for (const auto& [from, data] : node.dependencies) erase(&from->dependents, &node);
  for (const auto& [to, data] : node.dependents) erase(&to->dependencies, &node);
  for (const auto& body : node.operation->bodies()) end_graph(*body);
  Graph& graph = *node.graph;
  node.graph = nullptr;
  Driver::get().registry().remove<Node>(node.handle);
  std::erase_if(graph.nodes, [&node](const auto& other) { return other.get() == &node; });
}

bool topological_order(const Graph& graph, std::vector<Node*>* order, Node** cycle) {
  std::unordered_map<const Node*, size_t> missing;
  std::vector<Node*> ready;
  for (const auto& node : graph.nodes) {
    missing[node.get()] = node->dependencies.size();
    if (node->dependencies.empty()) ready.push_back(node.get());
  }
  for (size_t i = 0; i < ready.size(); ++i) {
    for (const auto& [to, data] : ready[i]->dependents) {
      if (--missing[to] == 0) ready.push_back(to);
    }
  }
  for (const auto& node : graph.nodes) {
    if (missing[node.get()] == 0) continue;
    *cycle = node.get();
    return false;
  }
  *order = std::move(ready);
  return true;
}

bool has_type(const Graph& graph, CUgraphNodeType type) {
  return std::ranges::any_of(graph.nodes, [type](const auto& node) {
    return node->operation->type() == type ||
           std::ranges::any_of(node->operation->bodies(),
                               [type](const auto& body) { return has_type(*body, type); });
  });
}

bool has_memory_nodes(const Graph& graph) {
  return has_type(graph, CU_GRAPH_NODE_TYPE_MEM_ALLOC) ||
         has_type(graph, CU_GRAPH_NODE_TYPE_MEM_FREE);
}

}  // namespace fargpu::sim

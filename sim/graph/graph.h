// Graphs: nodes, their operations, and edges. Everything here is guarded by one mutex (with_graphs
// in api.h): graphs are edited rarely, and they refer to each other.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "sim/base/registry.h"
#include "sim/graph/operation.h"
#include "sim/work/user_object.h"

namespace fargpu::sim {

// Guards all graphs, nodes and the shapes of executable graphs.
std::mutex& graph_mutex();

struct Node;
class ConditionalValue;
class ToldParameters;  // kernel_node.h

struct Dependency {
  Node* node;
  CUgraphEdgeData data;
};

struct Node {
  static constexpr ObjectKind kKind = ObjectKind::kGraphNode;

  uint64_t handle = 0;     // 0: of an executable graph
  uint64_t original = 0;   // the handle of the node that it was copied from
  Graph* graph = nullptr;  // nullptr: destroyed
  OperationPtr operation;
  bool enabled = true;  // of an executable graph
  std::vector<Dependency> dependencies, dependents;
  std::shared_ptr<ToldParameters> told;  // of a kernel node that was asked for them; else null
};

struct Graph {
  static constexpr ObjectKind kKind = ObjectKind::kGraph;

  uint64_t handle = 0;
  uint64_t original = 0;                     // the handle of the graph that it was copied from
  bool embedded = false;                     // belongs to a node of another graph
  bool moved = false;                        // into it, as a child
  bool conditional_body = false;             // likewise: of a conditional node
  bool capturing = false;                    // a capture adds nodes to it
  uint64_t executable = 0;                   // the handle of the last one
  uint64_t executable_with_memory = 0;       // of the last one with memory nodes
  std::vector<std::shared_ptr<Node>> nodes;  // in the order of their creation
  ObjectReferences objects;
  std::vector<std::shared_ptr<ConditionalValue>> conditionals;
};

bool same(const CUgraphEdgeData& a, const CUgraphEdgeData& b);
bool plain(const CUgraphEdgeData& data);  // a full dependency

// A node that is in a graph. nullptr: there is none.
std::shared_ptr<Node> find_node(CUgraphNode handle);
std::shared_ptr<Graph> find_graph(CUgraph handle);

// A graph that programs can name.
std::shared_ptr<Graph> make_graph();
// Removes the handles of the graph, its nodes and embedded graphs.
void end_graph(Graph& graph);
// A capture into the graph has failed: the graph ends. An embedded graph stays and loses its nodes.
void end_captured(Graph& graph);
// With `named`, programs can name the copy and its nodes.
std::shared_ptr<Graph> copy_graph(const Graph& graph, bool named);

// For a node of type `to`. CUDA_ERROR_INVALID_VALUE: a dependency is of another graph or given
// twice, or its data is wrong.
CUresult resolve_dependencies(const Graph& graph, CUgraphNodeType to, const CUgraphNode* handles,
                              const CUgraphEdgeData* data, size_t count,
                              std::vector<Dependency>* dependencies);
std::shared_ptr<Node> add_node(Graph& graph, OperationPtr operation,
                               std::vector<Dependency> dependencies);
// CUDA_ERROR_INVALID_VALUE: see resolve_dependencies(), or the edge exists.
CUresult add_edge(Node& from, Node& to, const CUgraphEdgeData& data);
// data: nullptr removes any edge.
CUresult remove_edge(Node& from, Node& to, const CUgraphEdgeData* data);
void remove_node(Node& node);

// The nodes in an order in which they could run. False: there is a cycle, through `*cycle`.
bool topological_order(const Graph& graph, std::vector<Node*>* order, Node** cycle);

// CUDA_ERROR_INVALID_VALUE: it uses memory of a graph that has a node to free it already, and
// `node` is not of that graph; nullptr: it is a new one.
CUresult check_memory(const Operation& operation, const Node* node);

// Of the graph itself and of embedded graphs.
bool has_memory_nodes(const Graph& graph);
bool has_type(const Graph& graph, CUgraphNodeType type);

}  // namespace fargpu::sim

// Graphs of the application: nodes, edges, graphs inside of nodes. Graphs are data of the client;
// the server gets a graph when it is instantiated (describe.h). The records are in the table of
// handles and refer to each other.
//
// As in CUDA, an application does not change a graph while another thread uses it; GraphLock makes
// sure that no mistake of that kind does harm. Everything here needs it, unless it says so.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "client/graph/node_params.h"
#include "client/object/object.h"

namespace fargpu::client {

struct Graph;
struct GraphNode;

class GraphLock {
 public:
  GraphLock();
  // References that were given up meanwhile end here, without the lock: destructors are functions
  // of the application.
  ~GraphLock() { unlock(); }
  // Before a wait for the server that functions of the application may have to end: they may be
  // about graphs. Graphs and nodes are not to be touched afterwards.
  void unlock();
  GraphLock(const GraphLock&) = delete;
  GraphLock& operator=(const GraphLock&) = delete;
  static void release_later(CUuserObject object, unsigned count);

 private:
  std::unique_lock<std::mutex> lock_;
  std::vector<std::pair<CUuserObject, unsigned>> released_;
};

struct GraphEdge {
  GraphNode* node = nullptr;  // at the other end
  CUgraphEdgeData data{};
};
// Neither ports nor a kind.
inline bool says_nothing(const CUgraphEdgeData& data) {
  return data.from_port == 0 && data.to_port == 0 && data.type == 0;
}

struct GraphNode final : Object {
  Graph* graph = nullptr;
  NodeParams params;
  std::vector<GraphEdge> before, after;
  std::vector<Graph*> inside;  // of a child or conditional node, which owns them
  uint64_t clone_of = 0;       // id of the node that it is a copy of

  CUgraphNode handle() const { return reinterpret_cast<CUgraphNode>(id); }
};

struct Graph final : Object {
  std::vector<GraphNode*> nodes;  // as they were added
  GraphNode* owner = nullptr;     // the node that it is inside of
  uint64_t clone_of = 0;
  std::map<CUuserObject, unsigned> user_objects;     // references
  Session* base = nullptr;                           // where its half stays (fgGraphAllocate)
  bool has_memory = false;                           // nodes that allocate or free: none may go
  std::set<CUdeviceptr> instantiated;                // memory of its nodes that it cannot free
  std::vector<CUgraphConditionalHandle> conditions;  // that no node uses yet
  uint64_t executable = 0;                           // id of its last executable graph

  CUgraph handle() const { return reinterpret_cast<CUgraph>(id); }
};

// nullptr: there is none.
Graph* find_graph(CUgraph graph);
GraphNode* find_node(CUgraphNode node);

// CUDA_ERROR_OUT_OF_MEMORY: the program has as many objects as there may be.
CUresult make_graph(Graph** graph);
// CUDA_ERROR_NOT_SUPPORTED: the graph has memory nodes or conditions, or is a body.
CUresult clone_graph(const Graph& original, Graph** clone);
// Including graphs inside of its nodes.
void end_graph(Graph& graph);
// Destroys all nodes. A graph inside of a node cannot be destroyed itself, only cleared.
void clear_graph(Graph& graph);

// Programmatic edges from captures may lead to nodes of every type, other ones only to kernels.
enum class EdgesOf { kApplication, kCapture };
// `data`: nullptr: all zero. CUDA_ERROR_INVALID_VALUE: one of `before` is not of this graph, or
// stands there twice.
CUresult add_node(Graph& graph, std::span<const CUgraphNode> before, const CUgraphEdgeData* data,
                  NodeParams params, GraphNode** node, EdgesOf whose = EdgesOf::kApplication);
void end_node(GraphNode& node);
// A child gets a copy of `graph`.
CUresult give_child(GraphNode& node, const Graph& graph);
// A child node gets `child` itself, which has no other owner.
void put_child(GraphNode& node, Graph& child);

// Whether there are conditional nodes in it: only one executable graph may exist of it then.
bool has_condition(const Graph& graph);
// Whether it is the graph of a conditional node.
bool is_body(const Graph& graph);
// Whether it is a child node whose graph was moved into it.
bool has_moved_child(const GraphNode& node);
// For calls that need a graph of its own. CUDA_ERROR_NOT_SUPPORTED: it was moved into another one;
// CUDA_ERROR_INVALID_VALUE: it is inside of another one otherwise.
CUresult stands_alone(const Graph& graph);
// A body takes nodes of every kind, but a graph with others than these is not instantiated.
bool fits_in_bodies(CUgraphNodeType type);
// A child becomes `graph` itself. CUDA_ERROR_NOT_SUPPORTED: it has conditional nodes.
CUresult move_child(GraphNode& node, Graph& graph);

// Nodes whose address or handle is the driver's (base_nodes.cc). An allocation gets its address; a
// conditional node takes its handle and gets the (empty) graphs of its bodies.
// CUDA_ERROR_INVALID_VALUE of the first two: the graph is a child of another one.
// CUDA_ERROR_NOT_SUPPORTED: conditions in a child, or the graph has a half at another server.
CUresult allocate(GraphNode& node);
void end_base(Graph& graph);        // its half at the server, if it has one
CUresult release(GraphNode& node);  // of memory of a graph; one node of all graphs does it
// The memory that they allocate. Nodes added after an instantiation cannot free it.
std::vector<CUdeviceptr> memory_of_nodes(const Graph& graph);
void node_ends(const GraphNode& node);
// For a copy or a fill. CUDA_ERROR_INVALID_VALUE: it uses memory of a graph that has a node to free
// it already, and `node` is not of that graph; nullptr: it is a new one.
CUresult check_memory(const NodeParams& params, const GraphNode* node);
CUresult take_condition(GraphNode& node);
// Kernels may update the kernel node from now on, by the handle that its parameters have then.
// CUDA_ERROR_NOT_SUPPORTED: the graph is inside of another one.
CUresult make_updatable(GraphNode& node);
// An attribute of a kernel node. Where kernels are to update the node, `value` names its device
// node afterwards: an output, for all its type. Takes the graphs' lock.
CUresult set_kernel_attribute(CUgraphNode node, CUkernelNodeAttrID id,
                              const CUkernelNodeAttrValue* value);
CUresult make_condition(Graph& graph, Context& context, unsigned initial, unsigned flags,
                        CUgraphConditionalHandle* handle);

// All or none. CUDA_ERROR_INVALID_VALUE: a node that is not of this graph or its own predecessor,
// an edge that is there already (add) or is not there (remove).
CUresult add_edges(Graph& graph, std::span<const CUgraphNode> from, std::span<const CUgraphNode> to,
                   const CUgraphEdgeData* data, EdgesOf whose = EdgesOf::kApplication);
CUresult remove_edges(Graph& graph, std::span<const CUgraphNode> from,
                      std::span<const CUgraphNode> to, const CUgraphEdgeData* data);

}  // namespace fargpu::client

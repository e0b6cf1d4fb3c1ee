// GraphEditor: changes a driver's graph to match its description, each time that the description
// changes. Nodes are known by the client's ids. Unchanged nodes stay, and so do the driver's
// values: addresses, handles of conditions and of nodes that kernels update. All on the executor's
// thread.
#pragma once

#include <cuda.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "generated/schema/graph_nodes.capnp.h"
#include "server/graph/graph_builder.h"

namespace fargpu::server {

struct MadeGraph;

// A node as it was made.
struct MadeNode {
  CUgraphNode node = nullptr;
  std::vector<std::byte> parameters;              // as they were described; empty: not known
  std::set<CUlaunchAttributeID> attributes;       // that a kernel node may have
  std::map<CUgraphNode, CUgraphEdgeData> before;  // edges to it
  std::vector<MadeGraph> inside;                  // of a child or a conditional node
  std::shared_ptr<GraphBase> moved;               // the child's, which was moved into it
};

// A graph and its nodes.
struct MadeGraph {
  // Some nodes of the client are two of the driver's: a copy, and a host call before or behind it.
  // Which of the two it is cannot change: an edge may have to stay.
  struct Key {
    uint64_t id = 0;  // the client's
    schema::graph::Node::Which kind = schema::graph::Node::EMPTY;
    bool is_behind = false;  // of a host call
    auto operator<=>(const Key&) const = default;
  };

  CUgraph graph = nullptr;
  std::map<Key, MadeNode> nodes;
  // Nodes that are not described any more, in graphs that cannot lose nodes: kernels and copies,
  // which executable graphs disable, and host nodes, which call nothing. Described again they serve
  // again.
  std::map<Key, MadeNode> left_over;
  std::vector<CUgraphNode> retired;  // never described; executable graphs disable them, too
};

// The nodes of a graph before its first description: by its number, an allocation and a node that
// kernels update.
struct EarlyNodes {
  std::span<const CUgraphNode> allocations, updatable;
};

class GraphEditor {
 public:
  // `gone`: receives the nodes to destroy, and loses the nodes that are made.
  GraphEditor(const GraphParts& parts, GraphPlaces& places, std::set<CUgraphNode>& gone)
      : parts_(parts), places_(places), gone_(gone) {}

  // As build_graph(). After an error `made` holds the present nodes, and the next description may
  // succeed. CUDA_ERROR_NOT_SUPPORTED: a node cannot change like this.
  CUresult edit(schema::graph::Nodes::Reader description, MadeGraph& made, const EarlyNodes& early,
                unsigned depth = 0);

 private:
  using Edges = std::vector<std::pair<CUgraphNode, CUgraphEdgeData>>;  // in their order

  const DriverTable& driver() const { return parts_.core.driver; }
  CUresult forget_others(const std::vector<MadeGraph::Key>& keys, MadeGraph& made);
  // False in `*gone`: it has to stay.
  CUresult take_away(const MadeGraph::Key& key, const MadeNode& node, MadeGraph& made, bool* gone);
  void note_gone(const MadeNode& node);
  CUresult put(schema::graph::Node::Reader node, const MadeGraph::Key& key,
               const std::vector<CUgraphNode>& earlier, MadeGraph& made, const EarlyNodes& early,
               unsigned depth, CUgraphNode* out);
  CUresult add(schema::graph::Node::Reader node, CUgraph graph,
               const std::vector<CUgraphNode>& before, CUcontext context, const EarlyNodes& early,
               unsigned depth, MadeNode* made);
  CUresult add_child(CUgraph graph, const std::vector<CUgraphNode>& before, MadeNode* made);
  CUresult add_conditional(schema::graph::Conditional::Reader node, CUgraph graph,
                           const std::vector<CUgraphNode>& before, CUcontext context,
                           MadeNode* made);
  CUresult add_moved_child(schema::graph::MovedChild::Reader child, CUgraph graph,
                           const std::vector<CUgraphNode>& before, unsigned depth, MadeNode* made);
  CUresult connect(CUgraph graph, const Edges& before, MadeNode& made);
  CUresult edit_inside(schema::graph::Node::Reader node, MadeNode& made, unsigned depth);

  const GraphParts& parts_;
  GraphPlaces& places_;
  std::set<CUgraphNode>& gone_;
  std::set<const MadeGraph*> open_;  // that are being edited, one inside of the other
};

}  // namespace fargpu::server

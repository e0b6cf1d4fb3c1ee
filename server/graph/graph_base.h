// GraphBase: the server's half of a graph, for graphs that need one before they are instantiated
// because the driver has given out an address or a handle of a node. The handle table maps the id
// of a graph to it; kept_objects.h keeps it as long as the id. All on the executor's thread.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "server/graph/graph_builder.h"
#include "server/graph/graph_editor.h"

namespace fargpu::server {

class GraphBase {
 public:
  // The graph of the driver's; nullptr: it could not be made.
  static std::shared_ptr<GraphBase> make(const GraphParts& parts);
  ~GraphBase();
  GraphBase(const GraphBase&) = delete;
  GraphBase& operator=(const GraphBase&) = delete;

  CUresult allocate(const CUmemPoolProps& pool, std::span<const CUmemAccessDesc> access,
                    size_t bytes, CUdeviceptr* address, unsigned* number);
  // A kernel node that kernels update.
  CUresult add_updatable(schema::graph::Node::Reader description, CUgraphDeviceNode* handle,
                         unsigned* number);
  // nullptr: it was moved into another graph.
  CUgraph get() const { return made_.graph; }
  // `kept` lives as long as the memory of the graph may be used.
  void keep(std::shared_ptr<void> kept) { kept_.push_back(std::move(kept)); }
  const std::vector<CUdeviceptr>& addresses() const { return addresses_; }  // of allocations

  // Changes the graph to match the description; as GraphEditor::edit(). Host nodes are new ones
  // each time: they belong to the executable graph that is made or updated next.
  CUresult edit(schema::graph::Nodes::Reader description, GraphPlaces* places);
  // Whether a node of the graph, which an executable graph was made with, is not there any more.
  bool is_gone(CUgraphNode node) const { return gone_.contains(node); }

  // An executable graph of it still exists in the driver although the client has destroyed it.
  // Until it has gone a driver makes no other one of a graph with memory.
  void note_ending(std::weak_ptr<const void> graph) { ending_.push_back(std::move(graph)); }
  bool has_ending() {
    std::erase_if(ending_, [](const auto& graph) { return graph.expired(); });
    return !ending_.empty();
  }

  // For GraphEditor, which moves the graph into another one.
  MadeGraph& made() { return made_; }
  EarlyNodes early() const { return {allocations_, updatable_}; }

 private:
  explicit GraphBase(const GraphParts& parts) : parts_(parts) {}

  const GraphParts parts_;
  MadeGraph made_;
  std::vector<CUgraphNode> allocations_, updatable_;
  std::vector<CUdeviceptr> addresses_;
  std::vector<std::shared_ptr<void>> kept_;
  std::set<CUgraphNode> gone_;
  std::vector<std::weak_ptr<const void>> ending_;
};

// The entry of a graph in the handle table: the part that keeps it shares it.
using SharedBase = std::shared_ptr<GraphBase>;

}  // namespace fargpu::server

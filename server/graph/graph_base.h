// GraphBase: the server's half of a graph that has one before it is instantiated, because the
// driver has given out an address or a handle of it. It is what the id of a graph stands for
// (handle table), and is kept with it (kept_objects.h). All on the executor's thread.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "server/graph/graph_builder.h"

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
  CUgraph get() const { return graph_; }
  // `kept` lives as long as the memory of the graph may be used.
  void keep(std::shared_ptr<void> kept) { kept_.push_back(std::move(kept)); }
  const std::vector<CUdeviceptr>& addresses() const { return addresses_; }  // of allocations

  // The first time it adds the described nodes. Nodes of such graphs cannot be taken away again:
  // later the description must be the same, else CUDA_ERROR_NOT_SUPPORTED. So it is for a graph
  // with host nodes, which cannot know whose launch calls them.
  CUresult build(schema::graph::Nodes::Reader description, std::span<const std::byte> bytes,
                 GraphPlaces** places);
  // Instead of build(), by whoever adds the nodes: the graph is about to go into another one, whose
  // it is after moved(). Once; false: it was built already.
  bool begin_move(std::vector<CUgraphNode>* allocations);
  void moved() { graph_ = nullptr; }

 private:
  explicit GraphBase(const GraphParts& parts) : parts_(parts) {}

  const GraphParts parts_;
  CUgraph graph_ = nullptr;
  std::vector<CUgraphNode> allocations_, updatable_;
  std::vector<CUdeviceptr> addresses_;
  std::vector<std::shared_ptr<void>> kept_;
  bool built_ = false;
  std::vector<std::byte> description_;
  GraphPlaces places_;
};

// What the handle table has for a graph: the part that keeps it shares it.
using BaseHolder = std::shared_ptr<GraphBase>;

}  // namespace fargpu::server

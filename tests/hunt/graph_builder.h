// Makes the CUgraph of a program's graph, node by node or from streams that are captured.
#pragma once

#include <cuda.h>

#include <functional>
#include <vector>

#include "tests/hunt/buffers.h"
#include "tests/hunt/run.h"

namespace fargpu::hunt {

// The parameters of a node as calls take them; valid while the object is.
class NodeParams {
 public:
  // `counter`: device memory that a counted fill counts in.
  NodeParams(const Device& device, const Buffers& buffers, const Node& node, CUdeviceptr counter);
  NodeParams(const NodeParams&) = delete;
  NodeParams& operator=(const NodeParams&) = delete;

  const CUDA_KERNEL_NODE_PARAMS& kernel() const { return kernel_; }
  const CUDA_MEMCPY3D& copy() const { return copy_; }
  const CUDA_MEMSET_NODE_PARAMS& memset() const { return memset_; }

 private:
  CUdeviceptr to_ = 0, from_ = 0, counter_;
  uint32_t value_, words_ = 0;
  void* parameters_[4] = {};
  CUDA_KERNEL_NODE_PARAMS kernel_{};
  CUDA_MEMCPY3D copy_{};
  CUDA_MEMSET_NODE_PARAMS memset_{};
};

struct Builder {
  const Device& device;
  const Program& program;
  const Buffers& buffers;
  const std::vector<CUevent>& events;
  const std::vector<CUstream>& lanes;        // of the thread
  const std::vector<CUdeviceptr>& counters;  // by node
  Mistake mistake;
  size_t operation;  // whose values the nodes have
  // What the function of a host node gets.
  std::function<CUDA_HOST_NODE_PARAMS(int index, const Node& node)> host_node;

  // `nodes`: by node, null where the graph has none for it.
  CUgraph build(std::vector<CUgraphNode>& nodes) const;

 private:
  void add_level(CUgraph graph, int inside, std::vector<CUgraphNode>& nodes) const;
  CUgraphNode add(CUgraph graph, int index, const std::vector<CUgraphNode>& after,
                  std::vector<CUgraphNode>& nodes) const;
  CUgraph capture(std::vector<CUgraphNode>& nodes) const;
  void capture(int index, CUstream lane) const;
  const Graph& graph_of() const {
    return program.graphs[static_cast<size_t>(program.operations[operation].graph)];
  }
};

}  // namespace fargpu::hunt

#include "client/graph/queue_places.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "client/graph/graph.h"
#include "client/memory/address_map.h"
#include "client/process/process.h"
#include "client/process/tables.h"

namespace fargpu::client {
namespace {

// As seen on an H200 with driver 580 (docs/measurements/2026-11-28-calls-that-wait.md). One place
// too few stops the worker where a driver stops its caller; one too many stops a thread that
// natively goes on.
constexpr uint64_t kQueues = 8;
// More kernels side by side take more than their part of the queues: 400 of them 120 places.
constexpr uint64_t kManyKernels = 160, kQueuesOfManyKernels = 3;

bool is_inside_device(CUmemorytype type, CUdeviceptr address) {
  if (type == CU_MEMORYTYPE_ARRAY) return true;
  if (type == CU_MEMORYTYPE_HOST) return false;
  const auto region = Process::get().tables()->device_memory.find(address);
  return region && region->kind != MemoryKind::kManaged;
}

// Nodes that have one place together where one is behind the other.
bool joins_chains(const GraphNode& node) {
  if (node.params.type() == CU_GRAPH_NODE_TYPE_KERNEL) return true;
  if (node.params.type() != CU_GRAPH_NODE_TYPE_MEMCPY) return false;
  const CUDA_MEMCPY3D& copy = node.params.get().memcpy.copyParams;
  return is_inside_device(copy.srcMemoryType, copy.srcDevice) &&
         is_inside_device(copy.dstMemoryType, copy.dstDevice);
}

bool is_in_the_place_of_another(const GraphNode& node) {
  if (!joins_chains(node) || node.before.size() != 1) return false;
  const GraphNode& earlier = *node.before.front().node;
  return joins_chains(earlier) && earlier.after.size() == 1;
}

// The most nodes that are equally far from the begin of the graph.
uint64_t width(const Graph& graph) {
  struct Reached {
    size_t missing;  // of the nodes before it
    size_t depth = 0;
  };
  std::unordered_map<const GraphNode*, Reached> reached;
  std::vector<const GraphNode*> ready;
  for (const GraphNode* node : graph.nodes) {
    reached.emplace(node, Reached{node->before.size()});
    if (node->before.empty()) ready.push_back(node);
  }
  std::vector<uint64_t> at_depth;
  for (size_t i = 0; i < ready.size(); ++i) {
    const size_t depth = reached.at(ready[i]).depth;
    at_depth.resize(std::max(at_depth.size(), depth + 1));
    ++at_depth[depth];
    for (const GraphEdge& edge : ready[i]->after) {
      Reached& next = reached.at(edge.node);
      next.depth = std::max(next.depth, depth + 1);
      if (--next.missing == 0) ready.push_back(edge.node);
    }
  }
  return at_depth.empty() ? 1 : *std::max_element(at_depth.begin(), at_depth.end());
}

uint64_t count(const Graph& graph) {
  uint64_t places = 0, inside = 0, kernels = 0;
  for (const GraphNode* node : graph.nodes) {
    switch (node->params.type()) {
      case CU_GRAPH_NODE_TYPE_GRAPH:
        for (const Graph* child : node->inside) inside += count(*child);
        break;
      case CU_GRAPH_NODE_TYPE_EMPTY:
        break;
      default:
        if (is_in_the_place_of_another(*node)) break;
        ++places;
        if (node->params.type() == CU_GRAPH_NODE_TYPE_KERNEL) ++kernels;
    }
  }
  const uint64_t wide = width(graph);
  const uint64_t queues = wide > kManyKernels && kernels > kManyKernels ? kQueuesOfManyKernels
                                                                        : std::min(wide, kQueues);
  return (places + queues - 1) / queues + inside;
}

}  // namespace

uint32_t queue_places(const Graph& graph) {
  return static_cast<uint32_t>(std::clamp(count(graph), uint64_t{1}, uint64_t{UINT32_MAX}));
}

}  // namespace fargpu::client

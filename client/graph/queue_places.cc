#include "client/graph/queue_places.h"

#include <algorithm>

#include "client/graph/graph.h"
#include "client/stream/stream_queue.h"

namespace fargpu::client {
namespace {

bool is_kernel(const GraphNode& node) { return node.params.type() == CU_GRAPH_NODE_TYPE_KERNEL; }

// A chain of kernels takes one place (seen on an H200 with driver 580: 1021 launches of 400 kernels
// each). Nodes that do not depend on each other take fewer places than this counts.
bool is_in_the_place_of_another(const GraphNode& node) {
  if (!is_kernel(node) || node.before.size() != 1) return false;
  const GraphNode& earlier = *node.before.front().node;
  return is_kernel(earlier) && earlier.after.size() == 1;
}

uint64_t count(const Graph& graph) {
  uint64_t places = 0;
  for (const GraphNode* node : graph.nodes) {
    if (node->params.type() == CU_GRAPH_NODE_TYPE_GRAPH) {
      for (const Graph* child : node->inside) places += count(*child);
    } else if (node->params.type() != CU_GRAPH_NODE_TYPE_EMPTY &&
               !is_in_the_place_of_another(*node)) {
      ++places;
    }
  }
  return places;
}

}  // namespace

uint32_t queue_places(const Graph& graph) {
  return static_cast<uint32_t>(std::clamp(count(graph), uint64_t{1}, uint64_t{StreamQueue::kMost}));
}

}  // namespace fargpu::client

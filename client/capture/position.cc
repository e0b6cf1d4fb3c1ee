#include "client/capture/position.h"

namespace fargpu::client {

namespace {

// The lower, the longer an edge waits: for the end of a node, for where it lets kernels begin, or
// for its start, with its end to come or without.
int rank(const CUgraphEdgeData& edge) {
  if (edge.from_port != CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER) return edge.from_port;
  return edge.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC ? 2 : 3;
}

}  // namespace

void Position::add(CUgraphNode node, const CUgraphEdgeData& edge) {
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i] != node) continue;
    if (rank(edge) < rank(edges[i])) edges[i] = edge;
    return;
  }
  nodes.push_back(node);
  edges.push_back(edge);
}

void Position::add(const Position& other) {
  for (size_t i = 0; i < other.nodes.size(); ++i) add(other.nodes[i], other.edges[i]);
}

}  // namespace fargpu::client

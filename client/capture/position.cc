#include "client/capture/position.h"

namespace fargpu::client {

void Position::add(CUgraphNode node, const CUgraphEdgeData& edge) {
  static_assert(CU_GRAPH_KERNEL_NODE_PORT_DEFAULT < CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC &&
                CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC < CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER);
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i] != node) continue;
    if (edge.from_port < edges[i].from_port) edges[i] = edge;
    return;
  }
  nodes.push_back(node);
  edges.push_back(edge);
}

void Position::add(const Position& other) {
  for (size_t i = 0; i < other.nodes.size(); ++i) add(other.nodes[i], other.edges[i]);
}

}  // namespace fargpu::client

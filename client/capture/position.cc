#include "client/capture/position.h"

#include <cstring>

namespace fargpu::client {

void Position::add(CUgraphNode node, const CUgraphEdgeData& edge) {
  for (size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i] == node && std::memcmp(&edges[i], &edge, sizeof edge) == 0) return;
  nodes.push_back(node);
  edges.push_back(edge);
}

void Position::add(const Position& other) {
  for (size_t i = 0; i < other.nodes.size(); ++i) add(other.nodes[i], other.edges[i]);
}

}  // namespace fargpu::client

#include "server/graph/graph_pieces.h"

#include <utility>

namespace fargpu::server {

bool GraphPieces::add(uint64_t id, std::span<const std::byte> piece) {
  std::vector<std::byte>& gathered = pieces_[id];
  if (piece.size() > kMaxBytes - bytes_) {
    bytes_ -= gathered.size();
    pieces_.erase(id);
    return false;
  }
  gathered.insert(gathered.end(), piece.begin(), piece.end());
  bytes_ += piece.size();
  return true;
}

std::vector<std::byte> GraphPieces::take(uint64_t id) {
  const auto found = pieces_.find(id);
  if (found == pieces_.end()) return {};
  std::vector<std::byte> taken = std::move(found->second);
  pieces_.erase(found);
  bytes_ -= taken.size();
  return taken;
}

}  // namespace fargpu::server

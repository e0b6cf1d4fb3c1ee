// Descriptions of graphs that are larger than one frame, while they arrive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace fargpu::server {

class GraphPieces {
 public:
  // Of all descriptions that are not complete yet.
  static constexpr size_t kMaxBytes = size_t{256} << 20;

  // The next piece of the graph with this id. False: there would be more than kMaxBytes; nothing is
  // left of this graph.
  bool add(uint64_t id, std::span<const std::byte> piece);
  // The pieces of the graph before the last one; empty: nothing.
  std::vector<std::byte> take(uint64_t id);

 private:
  std::unordered_map<uint64_t, std::vector<std::byte>> pieces_;
  size_t bytes_ = 0;
};

}  // namespace fargpu::server

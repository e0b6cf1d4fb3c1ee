// A place in a capture: the nodes on which the next node depends.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace fargpu::client {

struct Position {
  std::vector<CUgraphNode> nodes;
  std::vector<CUgraphEdgeData> edges;  // as many

  // A node stands there once, with the edge that waits longest: to its end, to where it lets
  // kernels begin early, or to its start.
  void add(CUgraphNode node, const CUgraphEdgeData& edge);
  void add(const Position& other);
  template <typename Gone>
  void erase_if(Gone gone) {
    for (size_t i = nodes.size(); i-- > 0;) {
      if (!gone(nodes[i])) continue;
      nodes.erase(nodes.begin() + static_cast<ptrdiff_t>(i));
      edges.erase(edges.begin() + static_cast<ptrdiff_t>(i));
    }
  }
};

// The position of an event that was recorded in a captured stream. It is no use once the capture
// has ended.
struct CapturedPlace {
  CapturedPlace(uint64_t of_capture, Position at) : capture(of_capture), position(std::move(at)) {
    count.fetch_add(1, std::memory_order_relaxed);
  }
  ~CapturedPlace() { count.fetch_sub(1, std::memory_order_relaxed); }
  CapturedPlace(const CapturedPlace&) = delete;
  CapturedPlace& operator=(const CapturedPlace&) = delete;

  const uint64_t capture;
  const Position position;

  // How many there are: while there are none, no event is looked up.
  static inline constinit std::atomic<unsigned> count{0};
};

}  // namespace fargpu::client

// How many bytes of a copy travel in one frame. Large frames cost least. But the calls of other
// threads wait behind each, so frames are small while there are such calls, and for a while after.
//
// Any thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace fargpu::client {

class PieceSize {
 public:
  static constexpr uint64_t kBesideOthers = 1u << 20;
  static constexpr int kPiecesBesideOthers = 64;

  // `most`: what a frame may hold.
  explicit PieceSize(uint64_t most) : most_(most) {}

  uint64_t most() const { return most_; }
  // Of the next piece. `meetings`: of the channel's threads (rpc::Channel::meetings()).
  uint64_t next(uint64_t meetings) {
    if (meetings_.exchange(meetings, std::memory_order_relaxed) != meetings) {
      left_.store(kPiecesBesideOthers, std::memory_order_relaxed);
    } else if (left_.load(std::memory_order_relaxed) <= 0) {
      return most_;
    }
    left_.fetch_sub(1, std::memory_order_relaxed);
    return std::min(kBesideOthers, most_);
  }

 private:
  const uint64_t most_;
  std::atomic<uint64_t> meetings_{0};
  std::atomic<int> left_{0};
};

}  // namespace fargpu::client

// Histogram: how often a time, in nanoseconds, was seen. Layout of a high dynamic range histogram:
// a power of two is divided into 128 equal buckets, so that a value is known to 0.8 %, from 1 ns to
// 18 minutes; the smallest and the largest are known exactly. Longer times count as the longest.
//
// A plain value of fixed size without pointers: it may lie in memory that processes share. No
// thread rules of its own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace fargpu::bench {

class Histogram {
 public:
  static constexpr uint64_t kLongest = (uint64_t{1} << 40) - 1;

  void add(uint64_t nanoseconds, uint64_t times = 1);
  void merge(const Histogram& other);

  uint64_t count() const { return count_; }
  // 0 of an empty histogram, like all figures below.
  uint64_t smallest() const { return count_ == 0 ? 0 : smallest_; }
  uint64_t largest() const { return largest_; }
  double mean() const;
  // The smallest time that at least `percent` of all do not exceed; `percent` in (0, 100].
  uint64_t percentile(double percent) const;
  uint64_t median() const { return percentile(50); }

  // Every bucket that is not empty: its middle and how many it has, smallest first.
  using Buckets = std::vector<std::pair<uint64_t, uint64_t>>;
  Buckets buckets() const;

 private:
  static constexpr unsigned kSubBits = 7;  // 128 buckets for each power of two
  static constexpr size_t kBuckets = (40 - kSubBits + 1) << kSubBits;
  static size_t index_of(uint64_t nanoseconds);
  static uint64_t middle_of(size_t index);

  uint64_t count_ = 0, smallest_ = 0, largest_ = 0;
  double sum_ = 0;
  std::array<uint64_t, kBuckets> counts_{};
};

}  // namespace fargpu::bench

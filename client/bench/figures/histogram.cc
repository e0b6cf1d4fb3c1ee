#include "client/bench/figures/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace fargpu::bench {

// Below 128 a bucket is one value. Above, the upper eight bits of a value say its bucket.
size_t Histogram::index_of(uint64_t nanoseconds) {
  if (nanoseconds < (uint64_t{1} << kSubBits)) return nanoseconds;
  const unsigned shift = static_cast<unsigned>(std::bit_width(nanoseconds)) - kSubBits - 1;
  return (static_cast<size_t>(shift) << kSubBits) + (nanoseconds >> shift);
}

uint64_t Histogram::middle_of(size_t index) {
  if (index < (size_t{1} << kSubBits)) return index;
  const auto shift = static_cast<unsigned>((index >> kSubBits) - 1);
  const uint64_t upper = (index & ((size_t{1} << kSubBits) - 1)) | (uint64_t{1} << kSubBits);
  return (upper << shift) + ((uint64_t{1} << shift) >> 1);
}

void Histogram::add(uint64_t nanoseconds, uint64_t times) {
  if (times == 0) return;
  nanoseconds = std::min(nanoseconds, kLongest);
  smallest_ = count_ == 0 ? nanoseconds : std::min(smallest_, nanoseconds);
  largest_ = std::max(largest_, nanoseconds);
  count_ += times;
  sum_ += static_cast<double>(nanoseconds) * static_cast<double>(times);
  counts_[index_of(nanoseconds)] += times;
}

void Histogram::merge(const Histogram& other) {
  if (other.count_ == 0) return;
  smallest_ = count_ == 0 ? other.smallest_ : std::min(smallest_, other.smallest_);
  largest_ = std::max(largest_, other.largest_);
  count_ += other.count_;
  sum_ += other.sum_;
  for (size_t i = 0; i < kBuckets; ++i) counts_[i] += other.counts_[i];
}

double Histogram::mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }

uint64_t Histogram::percentile(double percent) const {
  if (count_ == 0) return 0;
  const auto wanted = static_cast<uint64_t>(
      std::ceil(std::clamp(percent, 0.0, 100.0) / 100 * static_cast<double>(count_)));
  if (wanted >= count_) return largest_;
  uint64_t seen = 0;
  for (size_t i = 0; i < kBuckets; ++i) {
    seen += counts_[i];
    if (seen >= wanted && seen > 0) return std::clamp(middle_of(i), smallest_, largest_);
  }
  return largest_;
}

Histogram::Buckets Histogram::buckets() const {
  Buckets all;
  for (size_t i = 0; i < kBuckets; ++i)
    if (counts_[i] != 0) all.emplace_back(middle_of(i), counts_[i]);
  return all;
}

}  // namespace fargpu::bench

// When frames have passed an emulated link, in one direction; and the frames that wait for it. One
// thread, or under one lock.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "common/transport/link/link_settings.h"
#include "common/transport/transport.h"

namespace fargpu::transport {

// The time of frames on an otherwise empty link.
class LinkCost {
 public:
  explicit LinkCost(const LinkSettings& settings)
      : nanoseconds_per_byte_(settings.bits_per_second > 0 ? 8e9 / settings.bits_per_second : 0),
        delay_(0, settings.jitter.count()),
        random_(settings.jitter.count() > 0 ? std::random_device()() : 0) {}

  // The next frame's, in nanoseconds.
  double of(size_t bytes) {
    const bool delayed = delay_.max() > 0 && random_() % kDelayOneOf == 0;
    return without_jitter(bytes) + (delayed ? static_cast<double>(delay_(random_)) : 0);
  }
  double without_jitter(size_t bytes) const {
    return static_cast<double>(bytes) * nanoseconds_per_byte_;
  }

 private:
  static constexpr unsigned kDelayOneOf = 8;  // frames, with jitter
  const double nanoseconds_per_byte_;
  std::uniform_int_distribution<int64_t> delay_;  // nanoseconds
  std::minstd_rand random_;
};

// Bytes follow each other: a frame begins when the previous frame has passed.
class LinkSchedule {
 public:
  explicit LinkSchedule(const LinkSettings& settings) : cost_(settings) {}

  // A frame that is ready at `ready` has passed at the returned time.
  Clock::time_point pass(size_t bytes, Clock::time_point ready) {
    if (ready > free_at_) {
      free_at_ = ready;
      fraction_ = 0;
    }
    fraction_ += cost_.of(bytes);
    const double whole = std::floor(fraction_);
    fraction_ -= whole;  // kept, or small frames on a fast link would take no time at all
    free_at_ += std::chrono::nanoseconds(static_cast<int64_t>(whole));
    return free_at_;
  }

 private:
  LinkCost cost_;
  Clock::time_point free_at_{};
  double fraction_ = 0;  // of a nanosecond
};

// Memory that grows and is used again, without being cleared.
class LinkBuffer {
 public:
  std::span<std::byte> resize(size_t bytes) {
    if (bytes > capacity_) {
      words_ = std::make_unique_for_overwrite<uint64_t[]>((bytes + 7) / 8);
      capacity_ = bytes;
    }
    bytes_ = bytes;
    return span();
  }
  std::span<std::byte> span() { return {reinterpret_cast<std::byte*>(words_.get()), bytes_}; }
  size_t capacity() const { return capacity_; }

 private:
  std::unique_ptr<uint64_t[]> words_;  // words, for the alignment of bodies
  size_t capacity_ = 0, bytes_ = 0;
};

struct LinkFrame {
  wire::FrameHeader header;
  LinkBuffer body, bulk;
  Clock::time_point due{};  // of a frame that has come
  int64_t place = 0;        // of one that leaves, on its LinkWay
  size_t bytes() const { return sizeof header + header.body_bytes + header.bulk_bytes; }
};

// First in, first out; the frames' memory is used again. Large memory goes from frame to frame: new
// pages would cost more time than a fast link takes.
class LinkQueue {
 public:
  bool empty() const { return count_ == 0; }
  size_t bytes() const { return bytes_; }
  LinkFrame& front() { return *frames_[first_]; }
  // A frame to fill in; push() makes it the last one.
  LinkFrame& next() {
    if (count_ == frames_.size()) grow();
    return *frames_[(first_ + count_) % frames_.size()];
  }
  // Memory for its bulk.
  std::span<std::byte> next_bulk(size_t bytes) {
    LinkBuffer& bulk = next().bulk;
    if (bytes > bulk.capacity() && !spare_.empty()) {
      spare_bytes_ -= spare_.back().capacity();
      bulk = std::move(spare_.back());
      spare_.pop_back();
    }
    return bulk.resize(bytes);
  }
  void push() {
    bytes_ += frames_[(first_ + count_) % frames_.size()]->bytes();
    ++count_;
  }
  void pop() {
    LinkFrame& frame = front();
    bytes_ -= frame.bytes();
    give_back(frame.body);
    give_back(frame.bulk);
    first_ = (first_ + 1) % frames_.size();
    --count_;
  }

 private:
  static constexpr size_t kLargeBytes = 64 << 10, kMostSpareBytes = 32 << 20;

  void give_back(LinkBuffer& buffer) {
    (void)buffer.resize(0);
    if (buffer.capacity() <= kLargeBytes) return;
    LinkBuffer large = std::exchange(buffer, {});
    if (spare_bytes_ + large.capacity() > kMostSpareBytes) return;
    spare_bytes_ += large.capacity();
    spare_.push_back(std::move(large));
  }
  void grow() {
    std::rotate(frames_.begin(), frames_.begin() + static_cast<std::ptrdiff_t>(first_),
                frames_.end());
    first_ = 0;
    const size_t size = std::max<size_t>(64, 2 * frames_.size());
    while (frames_.size() < size) frames_.push_back(std::make_unique<LinkFrame>());
  }
  std::vector<std::unique_ptr<LinkFrame>> frames_;
  std::vector<LinkBuffer> spare_;
  size_t first_ = 0, count_ = 0, bytes_ = 0, spare_bytes_ = 0;
};

// Sleeps or spins: how long before a time one stops sleeping. A timer comes late by less than this,
// on an idle machine.
inline constexpr auto kLinkSpin = std::chrono::microseconds(150);

}  // namespace fargpu::transport

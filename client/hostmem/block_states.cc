#include "client/hostmem/block_states.h"

#include <algorithm>

namespace fargpu::client {

BlockStates::BlockStates(size_t bytes, size_t head, size_t tail)
    : bytes_(bytes),
      head_(head),
      tail_(tail),
      states_((head != 0) + (bytes - head - tail + kBlock - 1) / kBlock + (tail != 0),
              kOpen | kSuspect | kRecent | kUnseen),
      open_(states_.size()),
      end_(states_.size()) {}

BlockStates::Run BlockStates::next(size_t at, uint8_t mask, uint8_t value, size_t most) const {
  // What is open or suspect lies in a part that is often small.
  const size_t limit = value != 0 ? end_ : states_.size();
  size_t first = value != 0 ? std::max(at, begin_) : at;
  while (first < limit && (states_[first] & mask) != value) ++first;
  if (first >= limit) return {};
  size_t end = first + 1;
  while (end < limit && end - first < most && (states_[end] & mask) == value) ++end;
  return {first, end};
}

void BlockStates::open(Run run) {
  for (size_t at = run.first; at < run.end; ++at) {
    if (!is_open(at)) ++open_;
    states_[at] = kOpen | kSuspect | kRecent | kUnseen;
  }
  const bool none = begin_ == end_;
  begin_ = none ? run.first : std::min(begin_, run.first);
  end_ = none ? run.end : std::max(end_, run.end);
}

void BlockStates::close(Run run) {
  for (size_t at = run.first; at < run.end; ++at) {
    if (is_open(at)) --open_;
    states_[at] &= static_cast<uint8_t>(~kOpen);
  }
}

void BlockStates::settle(Run run) {
  for (size_t at = run.first; at < run.end; ++at)
    if (!is_open(at) && states_[at] != 0) states_[at] |= kSettled;
}

void BlockStates::compared(Run run, bool old) {
  for (size_t at = run.first; at < run.end; ++at) {
    if (is_open(at)) continue;
    if ((states_[at] & kSettled) != 0)
      states_[at] = 0;
    else if (old)
      states_[at] = (states_[at] & kRecent) != 0 ? kSuspect : 0;
    else
      states_[at] &= static_cast<uint8_t>(~kUnseen);
  }
  while (begin_ < end_ && states_[begin_] == 0) ++begin_;
  while (begin_ < end_ && states_[end_ - 1] == 0) --end_;
}

size_t BlockStates::begin_of(size_t block) const {
  if (block == 0) return 0;
  if (block >= states_.size()) return bytes_;
  if (tail_ != 0 && block + 1 == states_.size()) return bytes_ - tail_;
  return head_ + (block - (head_ != 0)) * kBlock;
}

size_t BlockStates::block_of(size_t offset) const {
  if (offset < head_) return 0;
  if (offset >= bytes_ - tail_) return states_.size() - 1;
  return (head_ != 0) + (offset - head_) / kBlock;
}

BlockStates::Run BlockStates::same_from(size_t block, size_t until) const {
  const size_t last = block_of(until - 1);
  size_t end = block + 1;
  while (end <= last && is_open(end) == is_open(block)) ++end;
  return {block, end};
}

}  // namespace fargpu::client

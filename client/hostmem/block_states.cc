#include "client/hostmem/block_states.h"

#include <algorithm>

namespace fargpu::client {

BlockStates::BlockStates(size_t bytes)
    : bytes_(bytes),
      states_((bytes + kBlock - 1) / kBlock, kOpen | kSuspect | kRecent),
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
    states_[at] = kOpen | kSuspect | kRecent;
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

void BlockStates::compared(Run run, bool old) {
  if (!old) return;
  for (size_t at = run.first; at < run.end; ++at) {
    if (!is_open(at)) states_[at] = (states_[at] & kRecent) != 0 ? kSuspect : 0;
  }
  while (begin_ < end_ && states_[begin_] == 0) ++begin_;
  while (begin_ < end_ && states_[end_ - 1] == 0) --end_;
}

size_t BlockStates::bytes(Run run) const {
  return std::min(run.end * kBlock, bytes_) - run.first * kBlock;
}

}  // namespace fargpu::client

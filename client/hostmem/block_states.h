// BlockStates: which blocks of a region the application can access (open), and which it may have
// changed since they were last compared (suspect). Open blocks are always suspect, and a closed
// block stays suspect until it was compared once more, if it is settled, or twice as old: a read
// that the system began while it was open may still bring bytes. Until it was compared once it is
// unseen: the application may have written it itself. All blocks begin open. Of a region whose
// first or last bytes share a page with others, these are blocks of their own. Pure; no threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/memory/page_gate.h"

namespace fargpu::client {

class BlockStates {
 public:
  static constexpr size_t kBlock = PageGate::kBlock;

  struct Run {
    size_t first = 0, end = 0;
    bool empty() const { return first == end; }
  };

  BlockStates() = default;
  // `head` and `tail`: how many bytes lie in pages that the region has only in part.
  explicit BlockStates(size_t bytes, size_t head = 0, size_t tail = 0);

  size_t count() const { return states_.size(); }
  // Beside those at the ends that never close.
  bool any_open() const { return open_ > size_t{head_ != 0} + size_t{tail_ != 0}; }
  bool is_open(size_t block) const { return (states_[block] & kOpen) != 0; }
  // The first run from `at` on of such blocks, at most so many; empty: there is none.
  Run next_open(size_t at) const { return next(at, kOpen, kOpen, states_.size()); }
  Run next_closed(size_t at, size_t most) const { return next(at, kOpen, 0, most); }
  Run next_suspect(size_t at) const { return next(at, kSuspect, kSuspect, states_.size()); }
  Run next_unseen(size_t at) const { return next(at, kUnseen, kUnseen, states_.size()); }

  void open(Run run);
  void close(Run run);
  // No such read was under way after it had been closed.
  void settle(Run run);
  // It was compared; `old`: not so soon after it was the last time.
  void compared(Run run, bool old);

  // Where a run begins in the region, how long it is, and the block of a byte.
  size_t offset(Run run) const { return begin_of(run.first); }
  size_t bytes(Run run) const { return begin_of(run.end) - begin_of(run.first); }
  size_t block_of(size_t offset) const;
  // How many blocks from `block` on are as open as it is, up to the one of the offset `until`.
  Run same_from(size_t block, size_t until) const;

 private:
  enum : uint8_t { kOpen = 1, kSuspect = 2, kRecent = 4, kUnseen = 8, kSettled = 16 };
  Run next(size_t at, uint8_t mask, uint8_t value, size_t most) const;

  size_t begin_of(size_t block) const;

  size_t bytes_ = 0, head_ = 0, tail_ = 0;
  std::vector<uint8_t> states_;
  size_t open_ = 0;
  size_t begin_ = 0, end_ = 0;  // suspect blocks lie in between
};

}  // namespace fargpu::client

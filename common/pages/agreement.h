// Agreement: the contents on which the two ends of a session last agreed for one region of memory
// that both have. It shows which bytes have changed since.
//
// Each end keeps one beside its own memory, which its program (the application, or device code) may
// change at any time. A byte that differs from the agreed contents was changed at this end. Both
// ends begin with zeros. Pure logic: sending the runs is up to the caller. One thread at a time;
// the memory itself may change meanwhile, and each byte is then read once.
//
// Order makes both copies equal. What one end collects, the other end agrees to in the same order.
// Where runs of both ends cross on the way, the client decides: its bytes stay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "common/pages/byte_runs.h"
#include "common/pages/late_words.h"

namespace fargpu::pages {

class Agreement {
 public:
  // Memory is compared in pieces of this size, at multiples of it.
  static constexpr size_t kPage = 4096;

  Agreement() = default;
  // Of the region [address, address + bytes) as the client names it. Throws std::bad_alloc.
  Agreement(uint64_t address, size_t bytes);
  Agreement(Agreement&& other) noexcept { swap(other); }
  Agreement& operator=(Agreement&& other) noexcept {
    Agreement moved(static_cast<Agreement&&>(other));
    swap(moved);
    return *this;
  }
  ~Agreement();

  uint64_t address() const { return address_; }
  size_t bytes() const { return bytes_; }
  bool holds(uint64_t address, size_t bytes) const {
    return address >= address_ && address - address_ <= bytes_ &&
           bytes <= bytes_ - (address - address_);
  }

  // The present contents of a changed piece: called with its address and its bytes, at most kPage
  // of them.
  using Visit = std::function<void(uint64_t address, std::span<const std::byte>)>;
  // Whether a run may hold bytes that were not changed: between others that were, so that words of
  // which a byte each was changed are one run, for an end that knows them by its own agreement,
  // unless its runs may be crossing these; or also behind them, up to the end of the piece, if
  // nobody can have changed them at the other end. Of a late word a run has no gaps.
  enum class Gaps { kNone, kInside, kBehind };
  // Writes what `memory` (the region's first byte, at this end) has in [from, until), offsets in
  // the region, and the agreement has not; from then on it is agreed. Returns the offset where it
  // stopped: `until`, or less when there was no room left. `late`: takes words that may be flags
  // instead; they are agreed as well, and contents() has their bytes.
  size_t collect(const std::byte* memory, size_t from, size_t until, RunWriter& runs,
                 const Visit& visit = {}, Gaps gaps = Gaps::kNone, LateWords* late = nullptr);
  std::span<const std::byte> contents(size_t offset, size_t bytes) const {
    return {agreed_ + offset, bytes};
  }

  // Whether `now`, at that offset, differs from the agreed contents.
  bool differs(size_t offset, std::span<const std::byte> now) const;
  // collect() for a word that was `now` a moment ago: as one run, if any byte was changed. False:
  // there was no room; nothing has happened.
  bool collect_word(size_t offset, std::span<const std::byte> now, RunWriter& runs);

  // Runs of the other end, each inside the region. agree(): they replace the bytes in the memory,
  // which the caller does (WordRuns).
  void agree(const ByteRun& run);
  // merge(): they replace them, but bytes that were changed at this end stay, and only bytes that
  // the other end changed are written.
  void merge(const ByteRun& run, std::byte* memory);

 private:
  void swap(Agreement& other) noexcept;

  uint64_t address_ = 0;
  size_t bytes_ = 0;
  std::byte* agreed_ = nullptr;  // anonymous memory: parts that were never changed take none
};

}  // namespace fargpu::pages

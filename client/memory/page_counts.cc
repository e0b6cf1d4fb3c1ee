#include "client/memory/page_counts.h"

#include <iterator>

#include "common/base/check.h"

namespace fargpu::client {

std::vector<PageCounts::Range> PageCounts::unused(uint64_t begin, uint64_t end) const {
  std::vector<Range> parts;
  auto next = counts_.upper_bound(begin);
  uint32_t count = next == counts_.begin() ? 0 : std::prev(next)->second;
  for (uint64_t at = begin; at < end;) {
    const uint64_t until = next == counts_.end() || next->first > end ? end : next->first;
    if (count == 0) parts.push_back({at, until});
    at = until;
    if (next != counts_.end()) count = next++->second;
  }
  return parts;
}

std::vector<PageCounts::Range> PageCounts::remove(uint64_t begin, uint64_t end) {
  change(begin, end, -1);
  return unused(begin, end);
}

// Makes an entry begin at `at`.
PageCounts::Map::iterator PageCounts::split(uint64_t at) {
  const auto next = counts_.lower_bound(at);
  if (next != counts_.end() && next->first == at) return next;
  const uint32_t count = next == counts_.begin() ? 0 : std::prev(next)->second;
  return counts_.emplace_hint(next, at, count);
}

void PageCounts::change(uint64_t begin, uint64_t end, int by) {
  if (begin >= end) return;
  const auto first = split(begin), last = split(end);
  for (auto entry = first; entry != last; ++entry) {
    FARGPU_CHECK(by > 0 || entry->second > 0);
    entry->second += static_cast<uint32_t>(by);
  }
  // Entries with the same count as the one before are removed.
  uint32_t before = first == counts_.begin() ? 0 : std::prev(first)->second;
  const auto stop = std::next(last);  // `last` itself may go
  for (auto entry = first; entry != stop;) {
    if (entry->second == before) {
      entry = counts_.erase(entry);
    } else {
      before = entry->second;
      ++entry;
    }
  }
}

}  // namespace fargpu::client

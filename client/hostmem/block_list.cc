#include "client/hostmem/block_list.h"

#include <cstdint>
#include <iterator>

namespace fargpu::client {

std::optional<size_t> BlockList::take(size_t bytes) {
  if (bytes == 0 || bytes > SIZE_MAX - kGranule) return std::nullopt;
  const size_t wanted = (bytes + kGranule - 1) / kGranule * kGranule;
  for (auto hole = free_.begin(); hole != free_.end(); ++hole) {
    const auto [offset, size] = *hole;
    if (size < wanted) continue;
    free_.erase(hole);
    if (size > wanted) free_.emplace(offset + wanted, size - wanted);
    taken_.emplace(offset, wanted);
    return offset;
  }
  return std::nullopt;
}

bool BlockList::give_back(size_t offset) {
  const auto taken = taken_.find(offset);
  if (taken == taken_.end()) return false;
  size_t begin = offset, bytes = taken->second;
  taken_.erase(taken);
  auto after = free_.lower_bound(begin);
  if (after != free_.end() && after->first == begin + bytes) {
    bytes += after->second;
    after = free_.erase(after);
  }
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == begin) {
      before->second += bytes;
      return true;
    }
  }
  free_.emplace(begin, bytes);
  return true;
}

}  // namespace fargpu::client

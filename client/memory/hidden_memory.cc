#include "client/memory/hidden_memory.h"

#include <algorithm>
#include <iterator>

namespace fargpu::client {

void HiddenMemory::add(uint64_t base, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  regions_[base] = bytes;
  set_bounds();
}

void HiddenMemory::remove(uint64_t base) {
  std::lock_guard lock(mutex_);
  if (regions_.erase(base) != 0) set_bounds();
}

void HiddenMemory::was_exposed(uint64_t base, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  uint64_t end = base + bytes;
  auto next = known_.upper_bound(base);
  if (next != known_.begin() && std::prev(next)->second >= base) --next;
  while (next != known_.end() && next->first <= end) {
    base = std::min(base, next->first);
    end = std::max(end, next->second);
    next = known_.erase(next);
  }
  if (known_.size() < kMostRanges) known_[base] = end;
}

bool HiddenMemory::may_be_known(uint64_t base, uint64_t bytes) const {
  std::lock_guard lock(mutex_);
  const auto after = known_.lower_bound(base + bytes);
  return after != known_.begin() && std::prev(after)->second > base;
}

std::optional<uint64_t> HiddenMemory::find(uint64_t address) const {
  const uint64_t lowest = lowest_.load(std::memory_order_acquire);
  if (address - lowest >= end_.load(std::memory_order_acquire) - lowest) return std::nullopt;
  std::lock_guard lock(mutex_);
  const auto after = regions_.upper_bound(address);
  if (after == regions_.begin()) return std::nullopt;
  const auto& [base, bytes] = *std::prev(after);
  if (address - base >= bytes) return std::nullopt;
  return base;
}

void HiddenMemory::set_bounds() {
  const uint64_t lowest = regions_.empty() ? 0 : regions_.begin()->first;
  const uint64_t end = regions_.empty() ? 0 : regions_.rbegin()->first + regions_.rbegin()->second;
  lowest_.store(lowest, std::memory_order_release);
  end_.store(end, std::memory_order_release);
}

}  // namespace fargpu::client

#include "sim/memory/allocation_map.h"

#include <mutex>

namespace fargpu::sim {

std::map<uint64_t, Allocation>::const_iterator AllocationMap::containing(uint64_t address) const {
  auto it = map_.upper_bound(address);
  if (it == map_.begin()) return map_.end();
  --it;
  return address < it->second.end() ? it : map_.end();
}

bool AllocationMap::insert(Allocation allocation) {
  std::unique_lock lock(mutex_);
  auto next = map_.lower_bound(allocation.base);
  if (next != map_.end() && next->second.base < allocation.end()) return false;
  if (next != map_.begin() && std::prev(next)->second.end() > allocation.base) return false;
  allocation.buffer_id = next_id_++;
  map_.emplace_hint(next, allocation.base, allocation);
  return true;
}

std::optional<Allocation> AllocationMap::erase(uint64_t base) {
  std::unique_lock lock(mutex_);
  auto it = map_.find(base);
  if (it == map_.end()) return std::nullopt;
  Allocation allocation = it->second;
  map_.erase(it);
  return allocation;
}

std::optional<Allocation> AllocationMap::find(uint64_t address) const {
  std::shared_lock lock(mutex_);
  auto it = containing(address);
  if (it == map_.end()) return std::nullopt;
  return it->second;
}

std::vector<Allocation> AllocationMap::take_context(uint64_t context) {
  std::vector<Allocation> taken;
  std::unique_lock lock(mutex_);
  for (auto it = map_.begin(); it != map_.end();) {
    if (it->second.context != context) {
      ++it;
      continue;
    }
    taken.push_back(it->second);
    it = map_.erase(it);
  }
  return taken;
}

bool AllocationMap::for_range(uint64_t address, uint64_t bytes,
                              const std::function<bool(Allocation&)>& visit) {
  std::unique_lock lock(mutex_);
  const uint64_t end = address + bytes;
  while (address < end) {
    auto it = containing(address);
    if (it == map_.end() || !visit(map_.at(it->first))) return false;
    address = it->second.end();
  }
  return true;
}

void AllocationMap::for_pool(uint64_t pool, const std::function<void(Allocation&)>& visit) {
  std::unique_lock lock(mutex_);
  for (auto& [base, allocation] : map_) {
    if (allocation.pool == pool) visit(allocation);
  }
}

bool AllocationMap::covered(uint64_t address, uint64_t bytes) const {
  return covers(address, bytes, false);
}

bool AllocationMap::covered_later(uint64_t address, uint64_t bytes) const {
  return covers(address, bytes, true);
}

void AllocationMap::set_access(uint64_t base, uint32_t mask) {
  std::unique_lock lock(mutex_);
  if (auto it = map_.find(base); it != map_.end()) it->second.readable = it->second.writable = mask;
}

void AllocationMap::add_access(uint64_t base, uint32_t mask) {
  std::unique_lock lock(mutex_);
  const auto it = map_.find(base);
  if (it == map_.end()) return;
  it->second.readable |= mask;
  it->second.writable |= mask;
}

bool AllocationMap::covers(uint64_t address, uint64_t bytes, bool later) const {
  if (bytes > UINT64_MAX - address) return false;
  const uint64_t end = address + bytes;
  std::shared_lock lock(mutex_);
  while (address < end) {
    auto it = containing(address);
    if (it == map_.end()) return false;
    if (it->second.readable == 0 && !(later && it->second.graph)) return false;
    address = it->second.end();
    // Only mappings of physical memory join.
    if (address < end && it->second.kind != Allocation::Kind::kMapped) return false;
  }
  return true;
}

bool AllocationMap::touches(uint64_t address, uint64_t bytes) const {
  std::shared_lock lock(mutex_);
  if (containing(address) != map_.end()) return true;
  auto next = map_.lower_bound(address);
  return next != map_.end() && next->second.base - address < bytes;
}

}  // namespace fargpu::sim

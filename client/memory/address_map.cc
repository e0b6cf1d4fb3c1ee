#include "client/memory/address_map.h"

#include <algorithm>
#include <mutex>

namespace fargpu::client {

AddressMap::Map::const_iterator AddressMap::locate(uint64_t address) const {
  auto after = regions_.upper_bound(address);
  if (after == regions_.begin()) return regions_.end();
  auto found = std::prev(after);
  return address - found->second.base < found->second.bytes ? found : regions_.end();
}

bool AddressMap::insert(const Region& region) {
  if (region.bytes == 0 || region.base + region.bytes < region.base) return false;
  std::unique_lock lock(mutex_);
  auto after = regions_.lower_bound(region.base);
  if (after != regions_.end() && after->second.base < region.base + region.bytes) return false;
  if (locate(region.base) != regions_.end()) return false;
  regions_.emplace(region.base, region);
  lowest_.store(std::min(lowest_.load(), region.base), std::memory_order_release);
  end_.store(std::max(end_.load(), region.base + region.bytes), std::memory_order_release);
  count_.store(regions_.size(), std::memory_order_release);
  return true;
}

std::optional<Region> AddressMap::find(uint64_t address) const {
  if (address < lowest_.load(std::memory_order_acquire) ||
      address >= end_.load(std::memory_order_acquire))
    return std::nullopt;
  std::shared_lock lock(mutex_);
  auto found = locate(address);
  if (found == regions_.end()) return std::nullopt;
  return found->second;
}

bool AddressMap::overlaps_other(uint64_t address, uint64_t bytes, const Session* session) const {
  std::shared_lock lock(mutex_);
  auto next = locate(address);
  if (next == regions_.end()) next = regions_.lower_bound(address);
  for (; next != regions_.end() && (next->first <= address || next->first - address < bytes);
       ++next) {
    if (next->second.session != session) return true;
  }
  return false;
}

bool AddressMap::overlaps(uint64_t address, uint64_t bytes) const {
  std::shared_lock lock(mutex_);
  if (locate(address) != regions_.end()) return true;
  const auto next = regions_.lower_bound(address);
  return next != regions_.end() && next->first - address < bytes;
}

std::optional<Region> AddressMap::erase(uint64_t base) {
  std::unique_lock lock(mutex_);
  auto found = regions_.find(base);
  if (found == regions_.end()) return std::nullopt;
  Region region = found->second;
  regions_.erase(found);
  count_.store(regions_.size(), std::memory_order_release);
  return region;
}

void AddressMap::erase_if(const std::function<bool(const Region&)>& gone) {
  std::unique_lock lock(mutex_);
  std::erase_if(regions_, [&](const auto& entry) { return gone(entry.second); });
  count_.store(regions_.size(), std::memory_order_release);
}

void AddressMap::mark_used(uint64_t address, uint64_t bytes) {
  std::unique_lock lock(mutex_);
  for (auto it = regions_.lower_bound(address); it != regions_.end() && it->first - address < bytes;
       ++it) {
    it->second.used = true;
  }
  auto after = regions_.upper_bound(address);
  if (after != regions_.begin()) {
    Region& before = std::prev(after)->second;
    if (address - before.base < before.bytes) before.used = true;
  }
}

bool AddressMap::change(uint64_t address, const std::function<void(Region&)>& change) {
  std::unique_lock lock(mutex_);
  const auto found = locate(address);
  if (found == regions_.end()) return false;
  change(regions_.find(found->first)->second);
  return true;
}

AddressMap::Extent AddressMap::extent(uint64_t address) const {
  std::shared_lock lock(mutex_);
  auto found = locate(address);
  if (found == regions_.end()) return {};
  Session* const session = found->second.session;
  uint64_t end = found->second.base + found->second.bytes;
  const bool is_mapped = found->second.kind == MemoryKind::kVirtual;
  for (auto next = std::next(found);
       is_mapped && next != regions_.end() && next->second.base == end &&
       next->second.session == session && next->second.kind == MemoryKind::kVirtual;
       ++next) {
    end += next->second.bytes;
  }
  return {end - address, session};
}

void AddressMap::update(const std::function<void(Region&)>& change) {
  std::unique_lock lock(mutex_);
  for (auto& [base, region] : regions_) change(region);
}

void AddressMap::for_each(const std::function<void(const Region&)>& visit) const {
  std::shared_lock lock(mutex_);
  for (const auto& [base, region] : regions_) visit(region);
}

}  // namespace fargpu::client

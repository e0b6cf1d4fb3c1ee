#include "server/memory/physical_memory.h"

#include <iterator>
#include <utility>

namespace fargpu::server {

void PhysicalMemory::created(uint64_t handle, size_t device, uint64_t bytes) {
  handles_[handle] = {std::make_shared<Memory>(Memory{device, bytes, 1}), 1};
}

std::shared_ptr<PhysicalMemory::Memory> PhysicalMemory::memory_at(const Mappings& mappings,
                                                                  uint64_t address) {
  const auto after = mappings.upper_bound(address);
  if (after == mappings.begin()) return nullptr;
  const auto& [begin, mapping] = *std::prev(after);
  return address - begin < mapping.bytes ? mapping.memory : nullptr;
}

void PhysicalMemory::retained(uint64_t handle, uint64_t address) {
  std::shared_ptr<Memory> memory;
  if (const auto known = handles_.find(handle); known != handles_.end()) {
    memory = known->second.memory;
  } else {
    memory = memory_at(mappings_, address);
    // The driver may have answered just before the unmapping.
    for (auto going = unmapping_.begin(); memory == nullptr && going != unmapping_.end(); ++going)
      memory = memory_at(going->second, address);
  }
  if (memory != nullptr) add_handle(handle, memory);
}

void PhysicalMemory::add_handle(uint64_t handle, const std::shared_ptr<Memory>& memory) {
  Handle& entry = handles_[handle];
  entry.memory = memory;
  ++entry.count;
  ++memory->references;
}

uint64_t PhysicalMemory::share(uint64_t handle) {
  const auto known = handles_.find(handle);
  if (known == handles_.end()) return 0;
  const std::shared_ptr<Memory>& memory = known->second.memory;
  if (memory->shared == 0) {
    memory->shared = next_shared_++;
    shared_[memory->shared] = memory;
  }
  return memory->shared;
}

std::shared_ptr<PhysicalMemory::Memory> PhysicalMemory::find_shared(uint64_t shared) const {
  const auto found = shared_.find(shared);
  return found == shared_.end() ? nullptr : found->second.lock();
}

uint64_t PhysicalMemory::bytes(uint64_t shared) const {
  const auto memory = find_shared(shared);
  return memory == nullptr ? 0 : memory->bytes;
}

std::optional<PhysicalMemory::Reach> PhysicalMemory::reach(uint64_t shared) const {
  const auto memory = find_shared(shared);
  if (memory == nullptr) return std::nullopt;
  std::optional<Reach> found;  // nothing: it is just being unmapped
  for (const auto& [handle, entry] : handles_) {
    if (entry.memory != memory) continue;
    if (!entry.is_import) return Reach{.handle = handle};
    found = Reach{.handle = handle};
  }
  for (const auto& [address, mapping] : mappings_)
    if (mapping.memory == memory) return Reach{.address = address};
  return found;
}

uint64_t PhysicalMemory::imported(uint64_t handle, size_t device) {
  // A driver may know the memory by this handle already.
  if (!handles_.contains(handle)) {
    created(handle, device, 0);
    handles_[handle].is_import = true;
  } else {
    add_handle(handle, handles_[handle].memory);
  }
  return share(handle);
}

bool PhysicalMemory::imported_again(uint64_t handle, uint64_t shared) {
  const auto memory = find_shared(shared);
  if (memory == nullptr) return false;
  const bool is_new = !handles_.contains(handle);
  add_handle(handle, memory);
  if (is_new) handles_[handle].is_import = true;
  return true;
}

bool PhysicalMemory::take_over(uint64_t shared, uint64_t bytes) {
  const auto memory = find_shared(shared);
  if (memory == nullptr || memory->bytes != 0) return false;
  memory->bytes = bytes;
  return true;
}

PhysicalMemory::Refunds PhysicalMemory::released(uint64_t handle) {
  Refunds refunds;
  const auto found = handles_.find(handle);
  if (found == handles_.end()) return refunds;
  const std::shared_ptr<Memory> memory = found->second.memory;
  if (--found->second.count == 0) handles_.erase(found);
  drop(*memory, refunds);
  return refunds;
}

void PhysicalMemory::mapped(uint64_t address, uint64_t bytes, uint64_t handle) {
  const auto found = handles_.find(handle);
  if (found == handles_.end()) return;
  ++found->second.memory->references;
  mappings_[address] = {bytes, found->second.memory};
}

PhysicalMemory::User PhysicalMemory::use(uint64_t handle) {
  const auto found = handles_.find(handle);
  if (found == handles_.end()) return nullptr;
  ++found->second.memory->references;
  return found->second.memory;
}

PhysicalMemory::Refunds PhysicalMemory::end_use(const std::vector<User>& users) {
  Refunds refunds;
  for (const User& user : users) drop(*user, refunds);
  return refunds;
}

PhysicalMemory::UnmapId PhysicalMemory::begin_unmap(uint64_t address, uint64_t bytes) {
  Mappings& going = unmapping_[next_unmap_];
  auto mapping = mappings_.lower_bound(address);
  while (mapping != mappings_.end() && mapping->first - address < bytes)
    going.insert(mappings_.extract(mapping++));
  return next_unmap_++;
}

PhysicalMemory::Refunds PhysicalMemory::end_unmap(UnmapId id, bool unmapped) {
  Refunds refunds;
  auto going = unmapping_.extract(id);
  if (going.empty()) return refunds;
  if (!unmapped) {
    mappings_.merge(going.mapped());
    return refunds;
  }
  for (const auto& [address, mapping] : going.mapped()) drop(*mapping.memory, refunds);
  return refunds;
}

void PhysicalMemory::drop(Memory& memory, Refunds& refunds) {
  if (--memory.references != 0) return;
  shared_.erase(memory.shared);
  refunds.push_back({memory.device, memory.bytes, memory.shared});
}

}  // namespace fargpu::server

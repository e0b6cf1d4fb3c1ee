#include "server/physical_memory.h"

#include <iterator>

namespace fargpu::server {

void PhysicalMemory::created(uint64_t handle, uint64_t bytes) {
  handles_[handle] = {std::make_shared<Memory>(Memory{bytes, 1}), 1};
}

void PhysicalMemory::retained(uint64_t handle, uint64_t address) {
  Handle& entry = handles_[handle];
  if (entry.memory == nullptr) {
    const auto after = mappings_.upper_bound(address);
    if (after == mappings_.begin()) {
      handles_.erase(handle);
      return;
    }
    entry.memory = std::prev(after)->second.memory;
  }
  ++entry.count;
  ++entry.memory->references;
}

uint64_t PhysicalMemory::released(uint64_t handle) {
  const auto found = handles_.find(handle);
  if (found == handles_.end()) return 0;
  const std::shared_ptr<Memory> memory = found->second.memory;
  if (--found->second.count == 0) handles_.erase(found);
  return drop(*memory);
}

void PhysicalMemory::mapped(uint64_t address, uint64_t bytes, uint64_t handle) {
  const auto found = handles_.find(handle);
  if (found == handles_.end()) return;
  ++found->second.memory->references;
  mappings_[address] = {bytes, found->second.memory};
}

uint64_t PhysicalMemory::unmapped(uint64_t address, uint64_t bytes) {
  uint64_t refund = 0;
  auto mapping = mappings_.lower_bound(address);
  while (mapping != mappings_.end() && mapping->first - address < bytes) {
    refund += drop(*mapping->second.memory);
    mapping = mappings_.erase(mapping);
  }
  return refund;
}

uint64_t PhysicalMemory::drop(Memory& memory) {
  return --memory.references == 0 ? memory.bytes : 0;
}

}  // namespace fargpu::server

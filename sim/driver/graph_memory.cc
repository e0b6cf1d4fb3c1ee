#include "sim/driver/graph_memory.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "sim/driver/device.h"
#include "sim/driver/driver.h"

namespace fargpu::sim {
namespace {

uint64_t block_bytes(uint64_t bytes) { return (bytes + 511) & ~uint64_t{511}; }

}  // namespace

GraphBlock::~GraphBlock() { owner.forget(*this); }

std::shared_ptr<GraphBlock> GraphMemory::make(uint64_t bytes, uint32_t access) {
  const uint64_t block = block_bytes(bytes);
  if (bytes == 0 || block < bytes) return nullptr;
  const uint64_t address = device_.memory().reserve(block);
  if (address == 0) return nullptr;
  Allocation allocation;
  allocation.base = address;
  allocation.bytes = bytes;
  allocation.device = device_.ordinal();
  allocation.readable = allocation.writable = 0;
  allocation.graph = true;
  Driver::get().allocations().insert(allocation);
  auto made = std::make_shared<GraphBlock>(*this, address, bytes, access);
  std::lock_guard lock(mutex_);
  blocks_[address] = made;
  return made;
}

std::shared_ptr<GraphBlock> GraphMemory::find(uint64_t address) const {
  std::lock_guard lock(mutex_);
  auto it = blocks_.find(address);
  return it == blocks_.end() ? nullptr : it->second.lock();
}

bool GraphMemory::outstanding(const GraphBlock& block) const {
  std::lock_guard lock(mutex_);
  return block.outstanding;
}

bool GraphMemory::back(GraphBlock& block) {
  const uint64_t bytes = block_bytes(block.bytes), more = bytes - std::min(bytes, unused_);
  if (more != 0 && !device_.memory().charge(more)) return false;
  unused_ -= bytes - more;
  reserved_ += more;
  reserved_high_ = std::max(reserved_high_, reserved_);
  block.backed = true;
  return true;
}

CUresult GraphMemory::begin(const std::shared_ptr<GraphBlock>& block) {
  const uint64_t bytes = block_bytes(block->bytes);
  std::lock_guard lock(mutex_);
  if (!block->backed && !back(*block)) return CUDA_ERROR_OUT_OF_MEMORY;
  block->outstanding = true;
  if (block->live++ != 0) return CUDA_SUCCESS;
  live_[block->address] = block;
  used_ += bytes;
  used_high_ = std::max(used_high_, used_);
  Driver::get().allocations().set_access(block->address, block->access);
  return CUDA_SUCCESS;
}

bool GraphMemory::claim_free(GraphBlock& block) {
  std::lock_guard lock(mutex_);
  return std::exchange(block.outstanding, false);
}

void GraphMemory::end(GraphBlock& block) {
  std::shared_ptr<GraphBlock> last;  // released after the lock: its destructor takes it
  std::lock_guard lock(mutex_);
  if (block.live == 0 || --block.live != 0) return;
  used_ -= block_bytes(block.bytes);
  Driver::get().allocations().set_access(block.address, 0);
  auto it = live_.find(block.address);
  last = std::move(it->second);
  live_.erase(it);
}

void GraphMemory::unback(GraphBlock& block) {
  if (std::exchange(block.backed, false)) unused_ += block_bytes(block.bytes);
}

void GraphMemory::forget(GraphBlock& block) {
  Driver::get().allocations().erase(block.address);
  std::lock_guard lock(mutex_);
  unback(block);
  blocks_.erase(block.address);
  device_.memory().give_back(block.address, block_bytes(block.bytes));
}

void GraphMemory::trim() {
  std::vector<std::shared_ptr<GraphBlock>> held;  // none ends under the lock
  std::lock_guard lock(mutex_);
  for (const auto& [address, weak] : blocks_) {
    auto block = weak.lock();
    if (!block) continue;
    if (block->live == 0) unback(*block);
    held.push_back(std::move(block));
  }
  reserved_ -= unused_;
  device_.memory().refund(std::exchange(unused_, 0));
}

CUresult GraphMemory::get(CUgraphMem_attribute attribute, uint64_t* value) const {
  std::lock_guard lock(mutex_);
  switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
      *value = used_;
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
      *value = used_high_;
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
      *value = reserved_;
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
      *value = reserved_high_;
      return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult GraphMemory::set(CUgraphMem_attribute attribute, uint64_t value) {
  std::lock_guard lock(mutex_);
  if (value != 0) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) {
    used_high_ = used_;
  } else if (attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) {
    reserved_high_ = reserved_;
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

}  // namespace fargpu::sim

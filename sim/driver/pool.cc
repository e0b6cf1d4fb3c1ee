#include "sim/driver/pool.h"

#include <algorithm>

#include "sim/driver/device.h"
#include "sim/driver/driver.h"

namespace fargpu::sim {
namespace {

uint64_t block_bytes(uint64_t bytes) { return (bytes + 511) & ~uint64_t{511}; }

}  // namespace

Pool::Pool(Device& device, bool is_default, uint64_t max_bytes)
    : device_(device), is_default_(is_default), max_bytes_(max_bytes) {
  access_[device.ordinal()] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

uint64_t Pool::allocate(uint64_t bytes) {
  const uint64_t block = block_bytes(bytes);
  if (bytes == 0 || block < bytes) return 0;
  std::lock_guard lock(mutex_);
  if (retired_) return 0;
  uint64_t address = 0;
  if (auto it = cached_.find(block); it != cached_.end()) {
    address = it->second;
    cached_.erase(it);
  } else {
    if (max_bytes_ != 0 && block > max_bytes_ - std::min(max_bytes_, reserved_)) trim_locked(0);
    if (max_bytes_ != 0 && block > max_bytes_ - std::min(max_bytes_, reserved_)) return 0;
    address = device_.memory().allocate(block);
    if (address == 0) {
      trim_locked(0);
      address = device_.memory().allocate(block);
    }
    if (address == 0) return 0;
    reserved_ += block;
    reserved_high_ = std::max(reserved_high_, reserved_);
  }
  used_ += block;
  used_high_ = std::max(used_high_, used_);
  return address;
}

void Pool::free(uint64_t address, uint64_t bytes) {
  const uint64_t block = block_bytes(bytes);
  std::unique_lock lock(mutex_);
  cached_.emplace(block, address);
  used_ -= block;
  trim_locked(retired_ ? 0 : threshold_);
  if (!retired_ || used_ != 0) return;
  lock.unlock();
  Driver::get().registry().remove<Pool>(handle_);
}

void Pool::trim(uint64_t keep) {
  std::lock_guard lock(mutex_);
  trim_locked(keep);
}

void Pool::trim_locked(uint64_t keep) {
  while (reserved_ > keep && !cached_.empty()) {
    auto largest = std::prev(cached_.end());
    device_.memory().free(largest->second, largest->first);
    reserved_ -= largest->first;
    cached_.erase(largest);
  }
}

CUresult Pool::get(CUmemPool_attribute attribute, void* value) const {
  std::lock_guard lock(mutex_);
  auto* wide = static_cast<cuuint64_t*>(value);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      *static_cast<int*>(value) =
          reuse_[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      *wide = threshold_;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      *wide = reserved_;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      *wide = reserved_high_;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      *wide = used_;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      *wide = used_high_;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult Pool::set(CUmemPool_attribute attribute, const void* value) {
  std::lock_guard lock(mutex_);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      reuse_[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] =
          *static_cast<const int*>(value) != 0;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      threshold_ = *static_cast<const cuuint64_t*>(value);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      if (*static_cast<const cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
      reserved_high_ = reserved_;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      if (*static_cast<const cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
      used_high_ = used_;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

bool Pool::retire() {
  std::lock_guard lock(mutex_);
  retired_ = true;
  trim_locked(0);
  return used_ == 0;
}

bool Pool::retired() const {
  std::lock_guard lock(mutex_);
  return retired_;
}

CUmemAccess_flags Pool::access(int device) const {
  std::lock_guard lock(mutex_);
  auto it = access_.find(device);
  return it == access_.end() ? CU_MEM_ACCESS_FLAGS_PROT_NONE : it->second;
}

uint32_t Pool::access_mask() const {
  std::lock_guard lock(mutex_);
  uint32_t mask = 0;
  for (const auto& [device, flags] : access_) {
    if (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) mask |= uint32_t{1} << device;
  }
  return mask;
}

void Pool::set_access(int device, CUmemAccess_flags flags) {
  std::lock_guard lock(mutex_);
  access_[device] = flags;
}

std::shared_ptr<Pool> find_pool(Driver& driver, CUmemoryPool handle) {
  auto pool = driver.registry().find<Pool>(handle);
  return pool && !pool->retired() ? pool : nullptr;
}

}  // namespace fargpu::sim

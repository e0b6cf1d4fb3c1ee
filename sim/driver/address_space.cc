#include "sim/driver/address_space.h"

#include <algorithm>

#include "sim/driver/device.h"
#include "sim/driver/physical_memory.h"
#include "sim/memory/allocation_map.h"
#include "sim/memory/reservation.h"

namespace fargpu::sim {
namespace {

bool aligned(uint64_t value) { return value % kMappingGranularity == 0; }

}  // namespace

CUresult AddressSpace::reserve(uint64_t bytes, uint64_t alignment, uint64_t wanted,
                               uint64_t* address) {
  if (bytes == 0 || !aligned(bytes) || (alignment & (alignment - 1)) != 0 ||
      bytes > (uint64_t{1} << 47)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  alignment = std::max(alignment, kMappingGranularity);
  if (alignment > (uint64_t{1} << 40)) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(mutex_);
  uint64_t start = 0;
  if (wanted != 0 && wanted % alignment == 0) {
    clear_own(wanted, wanted + bytes);
    start = reserve_at(wanted, bytes);
    if (start != 0) take_behind(start + bytes);
  }
  if (start == 0) {
    const uint64_t candidate = (next_ + alignment - 1) & ~(alignment - 1);
    start = reserve_at(candidate, bytes);
    if (start != 0) next_ = start + bytes;
  }
  if (start == 0) start = reserve_anywhere(bytes, alignment);
  if (start == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  reserved_[start] = bytes;
  *address = start;
  return CUDA_SUCCESS;
}

CUresult AddressSpace::free(uint64_t address, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  auto it = reserved_.find(address);
  if (it == reserved_.end() || it->second != bytes) return CUDA_ERROR_INVALID_VALUE;
  auto inside = mappings_.lower_bound(address);
  if (inside != mappings_.end() && inside->first < address + bytes) return CUDA_ERROR_INVALID_VALUE;
  unreserve(address, bytes);
  reserved_.erase(it);
  clear_own(address + bytes, address + bytes + 1);
  return CUDA_SUCCESS;
}

void AddressSpace::take_behind(uint64_t end) {
  if (reserve_at(end, kMappingGranularity) != 0) own_.insert(end);
}

void AddressSpace::clear_own(uint64_t begin, uint64_t end) {
  auto at = own_.lower_bound(begin - std::min(begin, kMappingGranularity - 1));
  while (at != own_.end() && *at < end) {
    unreserve(*at, kMappingGranularity);
    at = own_.erase(at);
  }
}

CUresult AddressSpace::map(uint64_t address, uint64_t bytes, uint64_t offset,
                           std::shared_ptr<PhysicalMemory> memory) {
  if (bytes == 0 || !aligned(bytes) || !aligned(address) || !aligned(offset))
    return CUDA_ERROR_INVALID_VALUE;
  if (offset > memory->bytes() || bytes > memory->bytes() - offset) return CUDA_ERROR_INVALID_VALUE;
  if (bytes != memory->bytes())
    return CUDA_ERROR_NOT_SUPPORTED;  // parts cannot be mapped, as in the driver
  std::lock_guard lock(mutex_);
  auto reservation = reserved_.upper_bound(address);
  if (reservation == reserved_.begin()) return CUDA_ERROR_INVALID_VALUE;
  --reservation;
  const uint64_t into = address - reservation->first;
  if (into >= reservation->second || bytes > reservation->second - into)
    return CUDA_ERROR_INVALID_VALUE;
  if (allocations_.touches(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (!memory->map_at(address, bytes, offset)) return CUDA_ERROR_OUT_OF_MEMORY;
  Allocation allocation;
  allocation.base = address;
  allocation.bytes = bytes;
  allocation.kind = Allocation::Kind::kMapped;
  allocation.device = memory->device().ordinal();
  allocation.readable = allocation.writable = 0;
  allocations_.insert(allocation);
  mappings_[address] = Mapping{bytes, std::move(memory)};
  return CUDA_SUCCESS;
}

bool AddressSpace::whole_mappings(uint64_t address, uint64_t bytes) const {
  if (bytes == 0 || bytes > UINT64_MAX - address) return false;
  uint64_t at = address;
  while (at < address + bytes) {
    auto it = mappings_.find(at);
    if (it == mappings_.end()) return false;
    at += it->second.bytes;
  }
  return at == address + bytes;
}

CUresult AddressSpace::unmap(uint64_t address, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  if (bytes > UINT64_MAX - address) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t end = address + bytes;
  const auto first = mappings_.lower_bound(address);
  auto last = first;
  while (last != mappings_.end() && last->first < end) ++last;
  const bool cut_before = first != mappings_.begin() &&
                          std::prev(first)->first + std::prev(first)->second.bytes > address;
  const bool cut_behind =
      first != last && std::prev(last)->first + std::prev(last)->second.bytes > end;
  if (first == last || cut_before || cut_behind) return CUDA_ERROR_INVALID_VALUE;
  for (auto it = first; it != last; ++it) {
    allocations_.erase(it->first);
    reserve_again(it->first, it->second.bytes);
  }
  mappings_.erase(first, last);
  return CUDA_SUCCESS;
}

CUresult AddressSpace::set_access(uint64_t address, uint64_t bytes, int device,
                                  CUmemAccess_flags flags) {
  std::lock_guard lock(mutex_);
  if (!whole_mappings(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  const uint32_t bit = uint32_t{1} << device;
  allocations_.for_range(address, bytes, [&](Allocation& allocation) {
    allocation.readable = flags != CU_MEM_ACCESS_FLAGS_PROT_NONE ? allocation.readable | bit
                                                                 : allocation.readable & ~bit;
    allocation.writable = flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? allocation.writable | bit
                                                                      : allocation.writable & ~bit;
    return true;
  });
  return CUDA_SUCCESS;
}

CUresult AddressSpace::access(uint64_t address, int device, unsigned long long* flags) const {
  const auto found = allocations_.find(address);
  if (!found || found->kind != Allocation::Kind::kMapped) return CUDA_ERROR_INVALID_VALUE;
  const bool readable = (found->readable >> device) & 1, writable = (found->writable >> device) & 1;
  *flags = writable   ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
           : readable ? CU_MEM_ACCESS_FLAGS_PROT_READ
                      : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

std::pair<uint64_t, uint64_t> AddressSpace::reservation(uint64_t address) const {
  std::lock_guard lock(mutex_);
  auto after = reserved_.upper_bound(address);
  if (after == reserved_.begin()) return {0, 0};
  const auto& [base, bytes] = *std::prev(after);
  return address - base < bytes ? std::pair{base, bytes} : std::pair<uint64_t, uint64_t>{0, 0};
}

std::shared_ptr<PhysicalMemory> AddressSpace::mapped(uint64_t address) const {
  std::lock_guard lock(mutex_);
  auto it = mappings_.upper_bound(address);
  if (it == mappings_.begin()) return nullptr;
  --it;
  return address - it->first < it->second.bytes ? it->second.memory : nullptr;
}

}  // namespace fargpu::sim

// Virtual memory management of the process: reserved address ranges and their mappings. Thread
// safe.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

namespace fargpu::sim {

class AllocationMap;
class PhysicalMemory;

class AddressSpace {
 public:
  // `begin`: where the first reservation is tried.
  AddressSpace(AllocationMap& allocations, uint64_t begin)
      : allocations_(allocations), next_(begin) {}

  // `wanted` is a hint. All sizes and addresses are multiples of the granularity.
  CUresult reserve(uint64_t bytes, uint64_t alignment, uint64_t wanted, uint64_t* address);
  // CUDA_ERROR_INVALID_VALUE: not a reservation of this size, or something is mapped in it.
  CUresult free(uint64_t address, uint64_t bytes);
  CUresult map(uint64_t address, uint64_t bytes, uint64_t offset,
               std::shared_ptr<PhysicalMemory> memory);
  // Every mapping in the range, which must not cut one in two.
  CUresult unmap(uint64_t address, uint64_t bytes);
  // The range must consist of whole mappings.
  CUresult set_access(uint64_t address, uint64_t bytes, int device, CUmemAccess_flags flags);
  CUresult access(uint64_t address, int device, unsigned long long* flags) const;
  // Base and bytes of the reservation around an address; zeros: there is none.
  std::pair<uint64_t, uint64_t> reservation(uint64_t address) const;
  // The memory mapped at an address; nullptr: none.
  std::shared_ptr<PhysicalMemory> mapped(uint64_t address) const;

 private:
  struct Mapping {
    uint64_t bytes;
    std::shared_ptr<PhysicalMemory> memory;
  };
  bool whole_mappings(uint64_t address, uint64_t bytes) const;
  // A driver has memory of its own behind addresses that it was asked for, if they are free. What
  // it is asked for later goes before.
  void take_behind(uint64_t end);
  void clear_own(uint64_t begin, uint64_t end);

  AllocationMap& allocations_;
  mutable std::mutex mutex_;
  std::map<uint64_t, uint64_t> reserved_;  // address -> bytes
  std::map<uint64_t, Mapping> mappings_;
  std::set<uint64_t> own_;  // each has kMappingGranularity bytes
  uint64_t next_;           // where the next reservation is tried
};

}  // namespace fargpu::sim

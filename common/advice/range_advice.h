// RangeAdvice: an application's advice about parts of a managed allocation, and their last prefetch
// location. Kept for whole pages, to be read back. For the client and for the simulated driver: how
// cuMemAdvise, cuMemPrefetchAsync and cuMemRangeGetAttribute judge their arguments is here, too.
// Pure, not thread safe.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

namespace fargpu::advice {

// As CUDA's first interface names a location: an ordinal or CU_DEVICE_CPU.
CUmemLocation location_of(CUdevice device);

// Whether memory can be prefetched to, or advised about, this location in a process with so many
// devices. CUDA_ERROR_INVALID_DEVICE: no such device; CUDA_ERROR_INVALID_VALUE: no such location.
CUresult check_location(const CUmemLocation& location, int devices);

// The arguments of a batch of prefetches: which of the `count` ranges goes where.
struct Prefetches {
  const CUmemLocation* locations;
  const size_t* firsts;  // locations[i] is that of the ranges from firsts[i] on
  size_t location_count;

  CUresult check(size_t count, int devices) const;
  const CUmemLocation& of(size_t range) const;
};

class RangeAdvice {
 public:
  // For the pages that [from, until), offsets in the allocation, touches.
  // CUDA_ERROR_INVALID_VALUE: no such advice or location.
  CUresult advise(uint64_t from, uint64_t until, CUmem_advise advice, const CUmemLocation& location,
                  int devices);
  // The same of CUDA's first interface. CUDA_ERROR_INVALID_DEVICE: no such device.
  CUresult advise(uint64_t from, uint64_t until, CUmem_advise advice, CUdevice device, int devices);
  // `as_given`: by a batch, after which the host has the number that the batch said.
  void prefetched(uint64_t from, uint64_t until, const CUmemLocation& location,
                  bool as_given = false);
  CUresult get(uint64_t from, uint64_t until, CUmem_range_attribute attribute, void* data,
               size_t bytes) const;

 private:
  // Type 0 (invalid): none.
  struct Location {
    int type = 0;
    int id = CU_DEVICE_INVALID;
    bool operator==(const Location&) const = default;
  };
  struct Part {
    bool read_mostly = false;
    Location preferred{};
    Location prefetched{};
    std::vector<int> accessed_by{};  // ordinals, ascending, then CU_DEVICE_CPU
    bool operator==(const Part&) const = default;
  };
  static Location to_location(const CUmemLocation& location);
  static bool is_of_a_node(const Location& location);
  static int device_of(const Location& location);
  void change(uint64_t from, uint64_t until, const std::function<void(Part&)>& change);
  // The advice that holds for all of these pages; `otherwise` when they differ.
  template <typename Value>
  Value common(uint64_t from, uint64_t until, Value Part::*member, Value otherwise) const;
  CUresult get_accessed_by(uint64_t from, uint64_t until, void* data, size_t bytes) const;

  std::map<uint64_t, Part> parts_{{0, Part{}}};  // by where they begin
};

}  // namespace fargpu::advice

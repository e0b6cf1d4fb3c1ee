#include "common/advice/range_advice.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace fargpu::advice {
namespace {

constexpr uint64_t kPage = 4096;

uint64_t page_of(uint64_t offset) { return offset / kPage * kPage; }
uint64_t page_end(uint64_t offset) { return page_of(offset + kPage - 1); }

CUresult put(void* data, size_t bytes, int value) {
  if (bytes != sizeof value) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(data, &value, sizeof value);
  return CUDA_SUCCESS;
}

bool needs_location(CUmem_advise advice) {
  return advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ||
         advice == CU_MEM_ADVISE_SET_ACCESSED_BY || advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
}

bool is_known(CUmemLocationType type) {
  return type == CU_MEM_LOCATION_TYPE_DEVICE || type == CU_MEM_LOCATION_TYPE_HOST ||
         type == CU_MEM_LOCATION_TYPE_HOST_NUMA || type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

}  // namespace

CUmemLocation location_of(CUdevice device) {
  CUmemLocation location{};
  location.type = device == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device == CU_DEVICE_CPU ? 0 : device;
  return location;
}

CUresult check_location(const CUmemLocation& location, int devices) {
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return location.id >= 0 && location.id < devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
      return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      return location.id >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult Prefetches::check(size_t count, int devices) const {
  if (locations == nullptr || firsts == nullptr || location_count == 0 || location_count > count ||
      firsts[0] != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < location_count; ++i) {
    if (firsts[i] >= count || (i > 0 && firsts[i] <= firsts[i - 1]))
      return CUDA_ERROR_INVALID_VALUE;
    if (check_location(locations[i], devices) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

const CUmemLocation& Prefetches::of(size_t range) const {
  const auto end = std::upper_bound(firsts, firsts + location_count, range);
  return locations[end - firsts - 1];
}

RangeAdvice::Location RangeAdvice::to_location(const CUmemLocation& location) {
  const bool has_id = location.type == CU_MEM_LOCATION_TYPE_DEVICE ||
                      location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
  const bool is_host = location.type == CU_MEM_LOCATION_TYPE_HOST;
  return {location.type, has_id ? location.id : is_host ? CU_DEVICE_CPU : 0};
}

bool RangeAdvice::is_of_a_node(const Location& location) {
  return location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
         location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

// As CUDA's first interface names it.
int RangeAdvice::device_of(const Location& location) {
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return location.id;
    case CU_MEM_LOCATION_TYPE_HOST:
      return CU_DEVICE_CPU;
    default:
      return CU_DEVICE_INVALID;
  }
}

CUresult RangeAdvice::advise(uint64_t from, uint64_t until, CUmem_advise advice, CUdevice device,
                             int devices) {
  const CUmemLocation location = location_of(device);
  if (needs_location(advice) && check_location(location, devices) != CUDA_SUCCESS)
    return CUDA_ERROR_INVALID_DEVICE;
  return advise(from, until, advice, location, devices);
}

CUresult RangeAdvice::advise(uint64_t from, uint64_t until, CUmem_advise advice,
                             const CUmemLocation& location, int devices) {
  if (needs_location(advice)) {
    if (check_location(location, devices) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  } else if (!is_known(location.type)) {
    return CUDA_ERROR_INVALID_VALUE;  // it counts for nothing, but a driver looks at it
  }
  const Location advised = to_location(location);
  switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
      change(from, until,
             [advice](Part& part) { part.read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY; });
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
      change(from, until, [advised](Part& part) { part.preferred = advised; });
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
      change(from, until, [](Part& part) { part.preferred = {}; });
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY: {
      const int device = device_of(advised);
      if (device == CU_DEVICE_INVALID) return CUDA_ERROR_INVALID_VALUE;
      change(from, until, [advice, device](Part& part) {
        std::erase(part.accessed_by, device);
        if (advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY) return;
        part.accessed_by.push_back(device);
        // The host comes last.
        std::sort(part.accessed_by.begin(), part.accessed_by.end(),
                  [](int a, int b) { return static_cast<unsigned>(a) < static_cast<unsigned>(b); });
      });
      return CUDA_SUCCESS;
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

void RangeAdvice::prefetched(uint64_t from, uint64_t until, const CUmemLocation& location,
                             bool as_given) {
  Location target = to_location(location);
  if (as_given && location.type == CU_MEM_LOCATION_TYPE_HOST) target.id = location.id;
  change(from, until, [target](Part& part) { part.prefetched = target; });
}

CUresult RangeAdvice::get(uint64_t from, uint64_t until, CUmem_range_attribute attribute,
                          void* data, size_t bytes) const {
  const Location preferred = common(from, until, &Part::preferred, Location{});
  const Location prefetched = common(from, until, &Part::prefetched, Location{});
  switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
      return put(data, bytes, common(from, until, &Part::read_mostly, false) ? 1 : 0);
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
      return put(data, bytes, device_of(preferred));
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
      return get_accessed_by(from, until, data, bytes);
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
      return put(data, bytes, is_of_a_node(prefetched) ? CU_DEVICE_CPU : device_of(prefetched));
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
      return put(data, bytes, preferred.type);
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
      return put(data, bytes, preferred.id);
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
      return put(data, bytes, prefetched.type);
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
      return put(data, bytes, prefetched.id);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// Those that all pages have; the rest of the room is CU_DEVICE_INVALID.
CUresult RangeAdvice::get_accessed_by(uint64_t from, uint64_t until, void* data,
                                      size_t bytes) const {
  if (bytes == 0 || bytes % sizeof(int) != 0) return CUDA_ERROR_INVALID_VALUE;
  auto part = std::prev(parts_.upper_bound(from));
  std::vector<int> all = part->second.accessed_by;
  for (; part != parts_.end() && part->first < until; ++part) {
    std::erase_if(all, [&](int device) {
      const auto& here = part->second.accessed_by;
      return std::find(here.begin(), here.end(), device) == here.end();
    });
  }
  all.resize(bytes / sizeof(int), CU_DEVICE_INVALID);
  std::memcpy(data, all.data(), bytes);
  return CUDA_SUCCESS;
}

template <typename Value>
Value RangeAdvice::common(uint64_t from, uint64_t until, Value Part::*member,
                          Value otherwise) const {
  auto part = std::prev(parts_.upper_bound(from));
  const Value first = part->second.*member;
  for (; part != parts_.end() && part->first < until; ++part)
    if (!(part->second.*member == first)) return otherwise;
  return first;
}

void RangeAdvice::change(uint64_t from, uint64_t until, const std::function<void(Part&)>& change) {
  if (from >= until) return;
  const auto split = [this](uint64_t at) {
    const auto part = std::prev(parts_.upper_bound(at));
    if (part->first != at) parts_.emplace(at, part->second);
  };
  split(page_of(from));
  split(page_end(until));
  for (auto part = parts_.find(page_of(from)); part != parts_.end() && part->first < until; ++part)
    change(part->second);
  // Neighbours that have become alike are one.
  for (auto part = std::next(parts_.begin()); part != parts_.end();)
    part = part->second == std::prev(part)->second ? parts_.erase(part) : std::next(part);
}

}  // namespace fargpu::advice

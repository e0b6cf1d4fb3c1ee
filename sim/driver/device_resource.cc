#include "sim/driver/device_resource.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "sim/driver/device.h"

namespace fargpu::sim {
namespace {

constexpr uint64_t kMark = 0x6e65657267;

// In the padding of a CUdevResource.
struct Hidden {
  uint64_t mark = kMark;
  Partition partition;
};
static_assert(sizeof(Hidden) <= sizeof(CUdevResource::_internal_padding));

constexpr unsigned round_up(unsigned value, unsigned to) { return (value + to - 1) / to * to; }

}  // namespace

// The guideline of cuda.h per architecture.
Partition whole(const Device& device) {
  Partition all{.device = device.ordinal()};
  all.count = static_cast<unsigned>(device.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  const int capability = device.compute_capability();
  all.alignment = capability >= 90 ? 8 : 2;
  all.min_size = capability >= 90 ? 8 : capability >= 80 ? 4 : 2;
  return all;
}

CUdevResource to_resource(const Partition& partition) {
  CUdevResource resource{};
  if (partition.count == 0) return resource;  // CU_DEV_RESOURCE_TYPE_INVALID
  resource.type = CU_DEV_RESOURCE_TYPE_SM;
  resource.sm = {partition.count, partition.min_size, partition.alignment};
  Hidden hidden;
  hidden.partition = partition;
  std::memcpy(resource._internal_padding, &hidden, sizeof hidden);
  return resource;
}

bool from_resource(const CUdevResource& resource, Partition* partition) {
  Hidden hidden;
  std::memcpy(&hidden, resource._internal_padding, sizeof hidden);
  if (resource.type != CU_DEV_RESOURCE_TYPE_SM || hidden.mark != kMark) return false;
  *partition = hidden.partition;
  return true;
}

unsigned split_groups(const Partition& input, unsigned flags, unsigned wanted, unsigned groups,
                      unsigned* size) {
  constexpr unsigned kFineGrain = 2;  // of multiprocessors that need not be scheduled together
  const bool fine = (flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING) != 0;
  const unsigned least = fine ? kFineGrain : input.min_size;
  const unsigned alignment = fine ? kFineGrain : input.alignment;
  // The last few may be one group with the rest.
  *size = std::min(input.count, std::max(least, round_up(wanted, alignment)));
  return std::min(groups, input.count / *size);
}

uint64_t next_split() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1);
}

}  // namespace fargpu::sim

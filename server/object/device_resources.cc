#include "server/object/device_resources.h"

#include <algorithm>
#include <cstring>
#include <span>

namespace fargpu::server {

// A device gives the same answer again and again: the newest few are looked at.
CUdevResource DeviceResources::give(const CUdevResource& resource, uint16_t context) {
  constexpr size_t kLooked = 64;
  // Its padding is the driver's, and counts.
  const auto bytes_of = [](const CUdevResource& each) {
    return std::as_bytes(std::span(&each, 1));
  };
  const auto same = [&](const Kept& kept) {
    return kept.live && kept.context == context &&
           std::ranges::equal(bytes_of(kept.resource), bytes_of(resource));
  };
  const auto end = kept_.rbegin() + static_cast<long>(std::min(kLooked, kept_.size()));
  const auto found = std::find_if(kept_.rbegin(), end, same);
  uint64_t number = first_ + static_cast<uint64_t>(kept_.rend() - found) - 1;
  if (found == end) {
    if (kept_.size() == kRemembered) {
      kept_.pop_front();
      ++first_;
    }
    kept_.push_back({resource, context});
    number = first_ + kept_.size() - 1;
  }
  CUdevResource given{};
  given.type = resource.type;
  given.sm = resource.sm;
  std::memcpy(given._internal_padding, &number, sizeof number);
  return given;
}

const DeviceResources::Kept* DeviceResources::find_kept(const CUdevResource& given) const {
  uint64_t number = 0;
  std::memcpy(&number, given._internal_padding, sizeof number);
  if (number < first_ || number - first_ >= kept_.size()) return nullptr;
  const Kept& kept = kept_[number - first_];
  const CUdevResource& resource = kept.resource;
  const bool changed =
      resource.type != given.type || std::memcmp(&resource.sm, &given.sm, sizeof resource.sm) != 0;
  return changed || !kept.live ? nullptr : &kept;
}

const CUdevResource* DeviceResources::find(const CUdevResource& given) const {
  const Kept* const kept = find_kept(given);
  return kept == nullptr ? nullptr : &kept->resource;
}

uint16_t DeviceResources::context_of(const CUdevResource& given) const {
  const Kept* const kept = find_kept(given);
  return kept == nullptr ? uint16_t{0} : kept->context;
}

void DeviceResources::context_ended(uint16_t context) {
  for (Kept& kept : kept_) kept.live = kept.live && kept.context != context;
}

}  // namespace fargpu::server

// The resources of devices that the driver has given this session. A CUdevResource has parts that
// only the driver understands. The client gets a number instead of these parts, and only resources
// of the driver are passed back to it. One thread (the executor's).
#pragma once

#include <cuda.h>

#include <cstdint>
#include <deque>

namespace fargpu::server {

class DeviceResources {
 public:
  // Older ones are forgotten.
  static constexpr size_t kRemembered = 16384;

  // The same, with fargpu's number instead of the driver's parts. `context`: the green one that it
  // is of; 0: none.
  CUdevResource give(const CUdevResource& resource, uint16_t context);
  // The driver's resource for a client's copy. nullptr: never given, changed, or forgotten.
  const CUdevResource* find(const CUdevResource& given) const;
  uint16_t context_of(const CUdevResource& given) const;
  // Resources of the green context are not valid for the driver any more.
  void context_ended(uint16_t context);

 private:
  struct Kept {
    CUdevResource resource;
    uint16_t context;
    bool live = true;
  };
  const Kept* find_kept(const CUdevResource& given) const;

  std::deque<Kept> kept_;
  uint64_t first_ = 1;  // number of the oldest one
};

}  // namespace fargpu::server

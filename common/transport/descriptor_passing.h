// Passing descriptors of memory to the peer, where both ends are on one host (shm).
//
// The sender numbers the descriptors; a frame that is committed later refers to the number.
// Descriptors arrive before every frame committed after send(). A peer that sends more than
// kMaxWaiting without their being taken ends its session. Thread rules: send() like commit() (under
// the channel's send lock), take() like receive().
#pragma once

#include <cstdint>

#include "common/base/fd.h"
#include "common/base/status.h"

namespace fargpu::transport {

class DescriptorPassing {
 public:
  static constexpr unsigned kMaxWaiting = 64;  // sent and not yet taken

  virtual ~DescriptorPassing() = default;
  // `descriptor` stays the caller's. kLost; kNoCapacity when kMaxWaiting are under way.
  virtual Status send(uint64_t number, int descriptor) = 0;
  // The descriptor with this number, close-on-exec; it is given out once. kNotFound: none such has
  // arrived. Its type is not checked: the taker checks type, size and seals.
  virtual Result<Fd> take(uint64_t number) = 0;
};

}  // namespace fargpu::transport

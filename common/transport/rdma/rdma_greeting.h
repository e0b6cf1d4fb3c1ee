// The messages of two rdma ends while they connect: rdma_cm's private data, in the byte order of
// the machine (both are x86-64).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace fargpu::transport {

inline constexpr uint32_t kRdmaMagic = 0x46475244;  // "FGRD"
inline constexpr uint32_t kRdmaVersion = 1;

// With the request and with its acceptance. rdma_cm has room for 56 bytes.
struct RdmaGreeting {
  uint32_t magic;
  uint32_t version;
  uint64_t ring_address;
  uint32_t ring_key;
  uint32_t ring_bytes;
  uint32_t messages;
  uint32_t zero;
  std::array<std::byte, 16> cookie;  // of the request
};
static_assert(sizeof(RdmaGreeting) == 48);

// With a rejection.
struct RdmaRejection {
  uint32_t magic;
  uint32_t reason;  // 1: cookie, 2: resources, 3: version
};

}  // namespace fargpu::transport

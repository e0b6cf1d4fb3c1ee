// The answer to the integrity check with which NVIDIA's runtime starts.
//
// A pure function: everything that enters the digest is in the input, so it can be tested with
// fixed values. The device list must be the one that the client reports publicly.
// docs/interoperability.md describes it.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace fargpu::client::interop {

struct HandshakeDevice {
  std::array<uint8_t, 16> uuid;
  int32_t pci_domain = 0;
  int32_t pci_bus = 0;
  int32_t pci_device = 0;
};

struct HandshakeInput {
  uint32_t driver_version = 0;  // what cuDriverGetVersion says
  uint32_t version = 0;         // asked by the runtime: CUDART_VERSION, +1 or +2
  uint32_t process_id = 0;
  uint32_t thread_id = 0;                    // low half of pthread_self()
  uint64_t cudart_table = 0;                 // address of the CUDART_INTERFACE table
  uint64_t integrity_table = 0;              // address of the INTEGRITY_CHECK table
  uint64_t function = 0;                     // address in slot 1 of the latter
  uint64_t unix_seconds = 0;                 // as given by the runtime
  std::span<const HandshakeDevice> devices;  // visible devices in cuDeviceGetCount order
};

// The two 8-byte words of the answer.
std::array<uint64_t, 2> handshake(const HandshakeInput& input);

}  // namespace fargpu::client::interop

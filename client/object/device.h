// One visible GPU of the session as the client reports it: taken from the Welcome once, immutable
// afterwards.
#pragma once

#include <cuda.h>

#include <array>
#include <bitset>
#include <cstdint>
#include <string>

namespace fargpu::client {

struct Device {
  static constexpr size_t kAttributes = 160;  // room above CU_DEVICE_ATTRIBUTE_MAX of CUDA 13.0

  int ordinal = -1;  // among the visible devices of the process; -1: not numbered yet
  int worker_ordinal = 0;
  std::string name;
  std::array<uint8_t, 16> uuid{};
  uint64_t total_bytes = 0;
  std::string pci_bus_id;
  std::array<char, 8> luid{};
  bool has_luid = false;
  unsigned luid_node_mask = 0;
  int least_priority = 0;
  int greatest_priority = 0;
  std::array<int, kAttributes> attributes{};
  std::bitset<kAttributes> known;

  int attribute(CUdevice_attribute id) const {
    const auto index = static_cast<size_t>(id);
    return index < kAttributes ? attributes[index] : 0;
  }
  // 90 for 9.0
  int compute_capability() const {
    return 10 * attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
           attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  }
  void set(int id, int value) {
    if (id < 0 || static_cast<size_t>(id) >= kAttributes) return;
    attributes[static_cast<size_t>(id)] = value;
    known.set(static_cast<size_t>(id));
  }
  // Attributes of features that cannot work over a network, or do not yet, become 0.
  void hide_what_does_not_work();
};

}  // namespace fargpu::client

// A kernel node that kernels update (CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE): its handle,
// and the changes by kernels. The node of the graph and that of its one executable graph share it.
//
// Thread safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "sim/work/kernel_work.h"

namespace fargpu::sim {

class DeviceNode {
 public:
  DeviceNode();
  ~DeviceNode();
  DeviceNode(const DeviceNode&) = delete;
  DeviceNode& operator=(const DeviceNode&) = delete;
  static std::shared_ptr<DeviceNode> make();
  // nullptr: no node has this handle.
  static std::shared_ptr<DeviceNode> find(uint64_t handle);

  uint64_t handle() const { return reinterpret_cast<uint64_t>(this); }
  // The executable graph is uploaded to the device: earlier changes by kernels are dropped.
  void reset(const KernelWork& work, bool enabled);
  // False: the node is disabled.
  bool apply(KernelWork* work) const;

  // For kernels: cudaError_t. Nothing can be changed before reset().
  int set_parameter(size_t offset, std::span<const std::byte> value);
  int set_enabled(bool enabled);
  int set_grid(const std::array<uint32_t, 3>& grid);

 private:
  mutable std::mutex mutex_;
  bool on_device_ = false;
  bool enabled_ = true;
  size_t parameter_bytes_ = 0;
  std::map<size_t, std::byte> changed_;  // bytes of parameters
  std::optional<std::array<uint32_t, 3>> grid_;
};

}  // namespace fargpu::sim

// The simulated driver's process-wide state: devices, live objects, known memory. Made by the first
// successful cuInit and never destroyed, because stream threads may still run while the process
// exits.
#pragma once

#include <cuda.h>

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "sim/base/registry.h"
#include "sim/base/settings.h"
#include "sim/driver/address_space.h"
#include "sim/driver/device.h"
#include "sim/driver/interprocess.h"
#include "sim/driver/retired_images.h"
#include "sim/memory/allocation_map.h"

namespace fargpu::sim {

class HostUsage;

class Driver {
 public:
  // cuInit: reads the environment the first time; later calls repeat the first success.
  static CUresult initialize();
  // False before cuInit, and in a child after fork.
  static bool initialized();
  // Only after initialized() or inside initialize().
  static Driver& get();

  Registry& registry() { return registry_; }
  AllocationMap& allocations() { return allocations_; }
  AddressSpace& addresses() { return addresses_; }
  Interprocess& interprocess() { return interprocess_; }
  RetiredImages& retired_images() { return retired_images_; }
  std::span<const std::unique_ptr<Device>> devices() const { return devices_; }
  // nullptr: no such ordinal.
  Device* device(int ordinal) const;
  const Settings& settings() const { return settings_; }
  // The GPU memory of all processes; null: each has its own.
  const std::shared_ptr<HostUsage>& host_usage() const { return host_usage_; }
  // How many contexts there are.
  std::atomic<int>& contexts() { return contexts_; }

  // Gives back the bytes of an allocation that is no longer in the map.
  void release(const Allocation& allocation);

 private:
  explicit Driver(Settings settings) : settings_(std::move(settings)) {}
  void make_devices();
  Status begin_sharing();

  Settings settings_;
  std::shared_ptr<HostUsage> host_usage_;
  std::atomic<int> contexts_{0};
  Registry registry_;
  RetiredImages retired_images_;
  AllocationMap allocations_;
  AddressSpace addresses_{allocations_, reservations_begin(settings_.slot)};
  Interprocess interprocess_;
  std::vector<std::unique_ptr<Device>> devices_;
};

}  // namespace fargpu::sim

// One visible simulated GPU: identity, attributes, memory, memory pools. Lives from cuInit to the
// end of the process.
#pragma once

#include <cuda.h>

#include <memory>
#include <mutex>
#include <string>

#include "sim/base/registry.h"
#include "sim/base/settings.h"
#include "sim/driver/graph_memory.h"
#include "sim/driver/physical_memory.h"
#include "sim/exec/engine.h"
#include "sim/memory/device_memory.h"

namespace fargpu::sim {

class Pool;

class Device {
 public:
  // `ordinal`: as CUDA counts visible devices.
  Device(const Settings& settings, int ordinal, int unit);

  int ordinal() const { return ordinal_; }
  int index() const { return unit_; }  // the same in all processes
  int compute_capability() const { return compute_capability_; }
  bool prohibited() const { return prohibited_; }  // CU_COMPUTEMODE_PROHIBITED
  // Why there is no context.
  CUresult without_context() const {
    return prohibited_ ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_ERROR_OUT_OF_MEMORY;
  }
  const std::string& name() const { return name_; }
  Uuid uuid() const { return device_uuid(compute_capability_, unit_); }
  std::string pci_bus_id() const;
  DeviceMemory& memory() { return memory_; }
  PhysicalStore& physical_store() { return physical_store_; }
  GraphMemory& graph_memory() { return graph_memory_; }
  EngineOptions engine_options(size_t malloc_heap_bytes) const;

  // CUDA_ERROR_INVALID_VALUE for an id that cuda.h does not have.
  CUresult attribute(int id, int* value) const;
  // The same for ids that are known to exist.
  int attribute(CUdevice_attribute id) const;

  // --- pools: the default pool, which cannot be destroyed, and the pool that cuMemAllocAsync uses
  std::shared_ptr<Pool> default_pool() const;
  std::shared_ptr<Pool> current_pool() const;
  void set_current_pool(std::shared_ptr<Pool> pool);

 private:
  const int ordinal_;
  const int unit_, instances_;
  const int compute_capability_;
  const int threads_;
  const bool prohibited_;
  const std::string name_;
  DeviceMemory memory_;
  PhysicalStore physical_store_;
  GraphMemory graph_memory_{*this};

  mutable std::mutex mutex_;
  std::shared_ptr<Pool> default_pool_;
  std::shared_ptr<Pool> current_pool_;
};

// The value of every CUdevice_attribute for a simulated GPU of this capability, or an instance of
// one that is divided into `instances`; see device_attributes.cc.
CUresult simulated_attribute(int id, int compute_capability, int unit, int* value,
                             int instances = 0);

}  // namespace fargpu::sim

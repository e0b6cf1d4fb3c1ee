#include "sim/driver/device.h"

#include <fmt/core.h>

#include "sim/driver/driver.h"
#include "sim/driver/pool.h"

namespace fargpu::sim {

Device::Device(const Settings& settings, int ordinal, int unit)
    : ordinal_(ordinal),
      unit_(unit),
      instances_(settings.instances),
      compute_capability_(settings.compute_capability(gpu_of(unit))),
      threads_(settings.threads),
      prohibited_(settings.prohibited),
      name_(device_name(settings, gpu_of(unit))),
      memory_(gpu_of(unit), settings.unit_bytes(), settings.slot, Driver::get().host_usage(), unit),
      physical_store_(settings.unit_bytes()) {
  default_pool_ = std::make_shared<Pool>(*this, true);
  default_pool_->set_handle(Driver::get().registry().add(default_pool_, 0));
  current_pool_ = default_pool_;
}

std::string Device::pci_bus_id() const {
  return fmt::format("0000:{:02X}:00.0", pci_bus(gpu_of(unit_)));
}

EngineOptions Device::engine_options(size_t malloc_heap_bytes) const {
  EngineOptions options;
  options.compute_capability = compute_capability_;
  options.worker_threads = threads_;
  options.malloc_heap_bytes = malloc_heap_bytes;
  options.sm_count = static_cast<uint32_t>(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  return options;
}

CUresult Device::attribute(int id, int* value) const {
  if (id == CU_DEVICE_ATTRIBUTE_COMPUTE_MODE && prohibited_) {
    *value = CU_COMPUTEMODE_PROHIBITED;
    return CUDA_SUCCESS;
  }
  return simulated_attribute(id, compute_capability_, unit_, value, instances_);
}

int Device::attribute(CUdevice_attribute id) const {
  int value = 0;
  simulated_attribute(id, compute_capability_, unit_, &value, instances_);
  return value;
}

std::shared_ptr<Pool> Device::default_pool() const { return default_pool_; }

std::shared_ptr<Pool> Device::current_pool() const {
  std::lock_guard lock(mutex_);
  return current_pool_;
}

void Device::set_current_pool(std::shared_ptr<Pool> pool) {
  std::lock_guard lock(mutex_);
  current_pool_ = std::move(pool);
}

}  // namespace fargpu::sim

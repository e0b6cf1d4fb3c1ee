#include "sim/driver/device.h"

#include <fmt/core.h>

#include "sim/driver/context.h"
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
      physical_store_(settings.unit_bytes()),
      primary_handle_(reinterpret_cast<CUcontext>(Driver::get().registry().add(
          std::make_shared<PrimaryContext>(PrimaryContext{ordinal}), 0))) {
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

std::shared_ptr<Context> Device::primary() const {
  std::lock_guard lock(mutex_);
  return primary_;
}

std::shared_ptr<Context> Device::retain_primary() {
  std::lock_guard lock(mutex_);
  if (prohibited_) return nullptr;
  if (!primary_) {
    primary_ = Context::create(*this, primary_flags_, true);
    if (!primary_) return nullptr;
    primary_->set_handle(primary_handle_);
  }
  ++primary_references_;
  return primary_;
}

CUresult Device::release_primary() {
  std::shared_ptr<Context> last;
  {
    std::lock_guard lock(mutex_);
    if (primary_references_ == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (--primary_references_ > 0) return CUDA_SUCCESS;
    last = std::move(primary_);
    primary_ = nullptr;
  }
  if (last) last->destroy();  // a reset may have been before
  return CUDA_SUCCESS;
}

// The references stay, as with the driver (580): each may still be released. The next retain makes
// a new context.
void Device::reset_primary() {
  std::shared_ptr<Context> last;
  {
    std::lock_guard lock(mutex_);
    last = std::move(primary_);
    primary_ = nullptr;
    primary_flags_ = 0;
  }
  if (last) last->destroy();
}

unsigned Device::primary_flags() const {
  std::lock_guard lock(mutex_);
  return primary_flags_;
}

void Device::set_primary_flags(unsigned flags) {
  std::lock_guard lock(mutex_);
  primary_flags_ = flags;
  if (primary_) primary_->set_flags(flags);
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

#include "sim/driver/driver.h"

#include <pthread.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "common/base/log.h"
#include "sim/base/slow_end.h"
#include "sim/base/task_queue.h"
#include "sim/driver/pool.h"
#include "sim/memory/host_usage.h"

namespace fargpu::sim {
namespace {

// The one mutable global of the library; a driver has no other place to keep what cuInit made.
std::atomic<Driver*> g_driver{nullptr};
std::atomic<bool> g_ready{false};

void forget_after_fork() { g_ready.store(false); }

}  // namespace

CUresult Driver::initialize() {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  if (g_ready.load()) return CUDA_SUCCESS;
  if (g_driver.load())
    return CUDA_ERROR_NOT_INITIALIZED;  // a forked child: threads and memory stayed with the parent
  log::configure("sim", log::Level::kWarn);
  auto settings = read_settings([](const char* name) -> const char* { return std::getenv(name); });
  if (!settings) {
    log::error("{}", settings.status().message());
    return CUDA_ERROR_SYSTEM_NOT_READY;
  }
  if (settings->visible.empty()) return CUDA_ERROR_NO_DEVICE;
  TaskQueue::set_jitter(std::chrono::microseconds(settings->jitter_microseconds));
  TaskQueue::set_places(static_cast<size_t>(settings->queue_places));
  auto* driver = new Driver(std::move(*settings));
  if (const Status shared = driver->begin_sharing(); !shared.ok()) {
    log::error("{}", shared.message());
    delete driver;
    return CUDA_ERROR_SYSTEM_NOT_READY;
  }
  g_driver.store(driver);
  driver->make_devices();
  pthread_atfork(nullptr, nullptr, forget_after_fork);
  g_ready.store(true);
  return CUDA_SUCCESS;
}

bool Driver::initialized() { return g_ready.load(std::memory_order_acquire); }

Driver& Driver::get() { return *g_driver.load(std::memory_order_acquire); }

Status Driver::begin_sharing() {
  if (!settings_.shared.empty()) {
    FARGPU_ASSIGN_OR_RETURN(host_usage_, HostUsage::open(settings_.shared));
  }
  if (settings_.init_milliseconds > 0) {
    if (host_usage_) host_usage_->begin_initialization();
    std::this_thread::sleep_for(std::chrono::milliseconds(settings_.init_milliseconds));
    if (host_usage_) host_usage_->end_initialization();
  }
  if (settings_.context_end_milliseconds == 0) return Status();
  return end_slowly(std::chrono::milliseconds(settings_.context_end_milliseconds),
                    [this] { return contexts_.load() > 0; });
}

void Driver::make_devices() {
  for (size_t i = 0; i < settings_.visible.size(); ++i) {
    devices_.push_back(
        std::make_unique<Device>(settings_, static_cast<int>(i), settings_.visible[i]));
  }
}

Device* Driver::device(int ordinal) const {
  if (ordinal < 0 || static_cast<size_t>(ordinal) >= devices_.size()) return nullptr;
  return devices_[static_cast<size_t>(ordinal)].get();
}

void Driver::release(const Allocation& allocation) {
  switch (allocation.kind) {
    case Allocation::Kind::kDevice:
      interprocess_.ended(allocation);
      if (allocation.opened) break;
      if (allocation.pool != 0) {
        if (auto pool = registry_.find<Pool>(allocation.pool))
          pool->free(allocation.base, allocation.bytes);
      } else {
        device(allocation.device)->memory().free(allocation.base, allocation.bytes);
      }
      break;
    case Allocation::Kind::kPinned:
    case Allocation::Kind::kManaged:
      munmap(reinterpret_cast<void*>(allocation.base), (allocation.bytes + 4095) & ~size_t{4095});
      if (allocation.kind == Allocation::Kind::kManaged)
        device(allocation.device)->memory().refund(allocation.bytes);
      break;
    case Allocation::Kind::kRegistered:
    case Allocation::Kind::kMapped:
      break;
  }
}

}  // namespace fargpu::sim

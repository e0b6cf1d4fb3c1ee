#include "sim/nvml/management.h"

#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "common/base/log.h"
#include "sim/driver/device.h"

namespace fargpu::sim::nvml {
namespace {

std::mutex g_mutex;
std::atomic<int> g_users{0};
// Made once and never taken away: other threads may look at it while a process exits.
std::atomic<const std::vector<Gpu>*> g_gpus{nullptr};
std::atomic<Settings::Hang> g_hang{Settings::Hang::kNone};

nvmlReturn_t make_gpus() {
  log::configure("sim", log::Level::kWarn);
  auto settings = read_settings([](const char* name) -> const char* { return std::getenv(name); });
  if (!settings) {
    log::error("{}", settings.status().message());
    return NVML_ERROR_DRIVER_NOT_LOADED;
  }
  g_hang.store(settings->nvml_hang);
  hang_if_told(Settings::Hang::kInit);
  const int capability = settings->compute_capability;
  auto* gpus = new std::vector<Gpu>;
  for (int i = 0; i < settings->gpus; ++i) {
    gpus->push_back({i, capability, settings->memory_bytes, settings->prohibited,
                     device_name(capability), uuid_text(device_uuid(capability, i))});
  }
  g_gpus.store(gpus);
  return NVML_SUCCESS;
}

}  // namespace

std::string Gpu::serial() const { return fmt::format("{}", 1650000000000 + index); }

unsigned Gpu::attribute(int id) const {
  int value = 0;
  simulated_attribute(id, compute_capability, index, &value);
  return static_cast<unsigned>(value);
}

nvmlReturn_t initialize() {
  std::lock_guard lock(g_mutex);
  if (!g_gpus.load()) {
    if (nvmlReturn_t result = make_gpus(); result != NVML_SUCCESS) return result;
  }
  ++g_users;
  return NVML_SUCCESS;
}

nvmlReturn_t shut_down() {
  std::lock_guard lock(g_mutex);
  if (g_users.load() == 0) return NVML_ERROR_UNINITIALIZED;
  --g_users;
  return NVML_SUCCESS;
}

void hang_if_told(Settings::Hang call) {
  while (g_hang.load() == call) ::pause();
}

bool initialized() { return g_users.load(std::memory_order_acquire) > 0; }

std::span<const Gpu> gpus() { return *g_gpus.load(std::memory_order_acquire); }

const Gpu* find_gpu(nvmlDevice_t handle) {
  for (const Gpu& gpu : gpus()) {
    if (handle_of(gpu) == handle) return &gpu;
  }
  return nullptr;
}

nvmlDevice_t handle_of(const Gpu& gpu) {
  return reinterpret_cast<nvmlDevice_t>(const_cast<Gpu*>(&gpu));
}

}  // namespace fargpu::sim::nvml

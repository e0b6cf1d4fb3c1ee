#include "sim/nvml/management.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "common/base/log.h"
#include "sim/driver/device.h"
#include "sim/memory/host_usage.h"

namespace fargpu::sim::nvml {
namespace {

std::mutex g_mutex;
std::atomic<int> g_users{0};
// Made once and never taken away: other threads may look at it while a process exits.
struct Units {
  std::vector<Gpu> all;
  size_t gpus = 0;  // these come first
};
std::atomic<const Units*> g_units{nullptr};
std::atomic<const HostUsage*> g_usage{nullptr};
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
  if (!settings->shared.empty()) {
    static const auto usage = HostUsage::look(settings->shared);
    if (!usage.ok()) {
      log::error("{}", usage.status().message());
      return NVML_ERROR_UNKNOWN;
    }
    g_usage.store(usage->get());
  }
  const int instances = settings->instances;
  auto* units = new Units;
  const auto add = [&](int gpu, int instance) {
    const int capability = settings->compute_capability(gpu);
    Settings whole = *settings;
    if (instance < 0) whole.instances = 0;
    units->all.push_back({gpu, instance, instances, capability, whole.unit_bytes(),
                          settings->prohibited, device_name(whole, gpu),
                          uuid_text(device_uuid(capability, unit_of(gpu, instance)))});
  };
  for (int gpu = 0; gpu < settings->gpus; ++gpu) add(gpu, -1);
  units->gpus = units->all.size();
  for (int gpu = 0; gpu < settings->gpus; ++gpu)
    for (int instance = 0; instance < instances; ++instance) add(gpu, instance);
  g_units.store(units);
  return NVML_SUCCESS;
}

}  // namespace

std::string Gpu::serial() const { return fmt::format("{}", 1650000000000 + index); }

// A GPU as a whole has what its instances have.
size_t Gpu::used_bytes() const {
  const HostUsage* const usage = g_usage.load();
  if (usage == nullptr) return 0;
  uint64_t used = usage->used(unit_of(index, instance));
  for (int each = 0; instance < 0 && each < instances; ++each)
    used += usage->used(unit_of(index, each));
  return std::min<size_t>(used, memory_bytes);
}

unsigned Gpu::attribute(int id) const {
  int value = 0;
  const int divided = instance < 0 ? 0 : instances;
  simulated_attribute(id, compute_capability, unit_of(index, instance), &value, divided);
  return static_cast<unsigned>(value);
}

nvmlReturn_t initialize() {
  std::lock_guard lock(g_mutex);
  if (!g_units.load()) {
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

std::span<const Gpu> units() { return g_units.load(std::memory_order_acquire)->all; }

std::span<const Gpu> gpus() { return units().first(g_units.load(std::memory_order_acquire)->gpus); }

const Gpu* find_gpu(nvmlDevice_t handle) {
  for (const Gpu& gpu : units()) {
    if (handle_of(gpu) == handle) return &gpu;
  }
  return nullptr;
}

nvmlDevice_t handle_of(const Gpu& gpu) {
  return reinterpret_cast<nvmlDevice_t>(const_cast<Gpu*>(&gpu));
}

}  // namespace fargpu::sim::nvml

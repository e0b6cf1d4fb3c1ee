// Events: sets can be made, filled and waited for, and nothing ever happens.
#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "sim/nvml/api.h"

struct nvmlEventSet_st {};

using namespace fargpu::sim::nvml;

namespace {

constexpr unsigned long long kSupported = nvmlEventTypeSingleBitEccError |
                                          nvmlEventTypeDoubleBitEccError | nvmlEventTypePState |
                                          nvmlEventTypeXidCriticalError | nvmlEventTypeClock;

std::mutex g_mutex;
std::vector<std::unique_ptr<nvmlEventSet_st>> g_sets;

auto find(nvmlEventSet_t set) {
  return std::find_if(g_sets.begin(), g_sets.end(),
                      [&](const auto& known) { return known.get() == set; });
}

bool known(nvmlEventSet_t set) {
  std::lock_guard lock(g_mutex);
  return find(set) != g_sets.end();
}

nvmlReturn_t wait(nvmlEventSet_t set, nvmlEventData_t* data, unsigned milliseconds) {
  return with_library([&]() -> nvmlReturn_t {
    if (data == nullptr || !known(set)) return NVML_ERROR_INVALID_ARGUMENT;
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    return NVML_ERROR_TIMEOUT;
  });
}

}  // namespace

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t* set) {
  return with_library([&]() -> nvmlReturn_t {
    if (set == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    std::lock_guard lock(g_mutex);
    *set = g_sets.emplace_back(std::make_unique<nvmlEventSet_st>()).get();
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
  return with_library([&]() -> nvmlReturn_t {
    std::lock_guard lock(g_mutex);
    const auto found = find(set);
    if (found == g_sets.end()) return NVML_ERROR_INVALID_ARGUMENT;
    g_sets.erase(found);
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t* data,
                                 unsigned int timeoutms) {
  return wait(set, data, timeoutms);
}

nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t* data, unsigned int timeoutms) {
  return wait(set, data, timeoutms);
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long eventTypes,
                                      nvmlEventSet_t set) {
  return with_gpu(device, [&](const Gpu&) -> nvmlReturn_t {
    if (!known(set)) return NVML_ERROR_INVALID_ARGUMENT;
    return (eventTypes & ~kSupported) ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long* eventTypes) {
  return answer(device, eventTypes, kSupported);
}

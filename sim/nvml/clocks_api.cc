// Clocks and performance states. The clocks of processors and memory are those that the simulated
// driver says; nothing changes them.
#include "sim/driver/device.h"
#include "sim/nvml/api.h"
#include "sim/nvml/readings.h"

using namespace fargpu::sim::nvml;

namespace {

unsigned graphics_megahertz(const Gpu& gpu) {
  return gpu.attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE) / 1000;
}
unsigned memory_megahertz(const Gpu& gpu) {
  return gpu.attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) / 1000;
}

nvmlReturn_t give_clock(nvmlDevice_t device, nvmlClockType_t type, unsigned* clock) {
  return with_gpu(device, [&](const Gpu& gpu) -> nvmlReturn_t {
    switch (type) {
      case NVML_CLOCK_GRAPHICS:
      case NVML_CLOCK_SM:
        return give(clock, graphics_megahertz(gpu));
      case NVML_CLOCK_MEM:
        return give(clock, memory_megahertz(gpu));
      case NVML_CLOCK_VIDEO:
        return give(clock, kVideoMegahertz);
      default:
        return NVML_ERROR_INVALID_ARGUMENT;
    }
  });
}

}  // namespace

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type,
                                    unsigned int* clock) {
  return give_clock(device, type, clock);
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type,
                                       unsigned int* clock) {
  return give_clock(device, type, clock);
}

nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t device, nvmlClockType_t clockType,
                                            unsigned int* clockMHz) {
  return give_clock(device, clockType, clockMHz);
}

nvmlReturn_t nvmlDeviceGetDefaultApplicationsClock(nvmlDevice_t device, nvmlClockType_t clockType,
                                                   unsigned int* clockMHz) {
  return give_clock(device, clockType, clockMHz);
}

nvmlReturn_t nvmlDeviceGetMaxCustomerBoostClock(nvmlDevice_t device, nvmlClockType_t clockType,
                                                unsigned int* clockMHz) {
  return give_clock(device, clockType, clockMHz);
}

nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, nvmlClockType_t clockType,
                                nvmlClockId_t clockId, unsigned int* clockMHz) {
  return with_gpu(device, [&](const Gpu&) -> nvmlReturn_t {
    if (static_cast<unsigned>(clockId) >= NVML_CLOCK_ID_COUNT) return NVML_ERROR_INVALID_ARGUMENT;
    return give_clock(device, clockType, clockMHz);
  });
}

nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device, unsigned int* count,
                                                unsigned int* clocksMHz) {
  return with_gpu(device, [&](const Gpu& gpu) {
    const unsigned clocks[] = {memory_megahertz(gpu)};
    return give_list(count, clocksMHz, clocks);
  });
}

nvmlReturn_t nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t device, unsigned int memoryClockMHz,
                                                  unsigned int* count, unsigned int* clocksMHz) {
  return with_gpu(device, [&](const Gpu& gpu) -> nvmlReturn_t {
    if (memoryClockMHz != memory_megahertz(gpu)) return NVML_ERROR_NOT_FOUND;
    const unsigned highest = graphics_megahertz(gpu);
    const unsigned clocks[] = {highest, highest / 2, highest / 4};
    return give_list(count, clocksMHz, clocks);
  });
}

nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device,
                                                    unsigned long long* clocksEventReasons) {
  return answer(device, clocksEventReasons, nvmlClocksEventReasonGpuIdle);
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device,
                                                       unsigned long long* clocksThrottleReasons) {
  return nvmlDeviceGetCurrentClocksEventReasons(device, clocksThrottleReasons);
}

nvmlReturn_t nvmlDeviceGetSupportedClocksEventReasons(
    nvmlDevice_t device, unsigned long long* supportedClocksEventReasons) {
  return answer(device, supportedClocksEventReasons, nvmlClocksEventReasonAll);
}

nvmlReturn_t nvmlDeviceGetSupportedClocksThrottleReasons(
    nvmlDevice_t device, unsigned long long* supportedClocksThrottleReasons) {
  return nvmlDeviceGetSupportedClocksEventReasons(device, supportedClocksThrottleReasons);
}

nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, nvmlPstates_t* pState) {
  return answer(device, pState, NVML_PSTATE_0);
}

nvmlReturn_t nvmlDeviceGetPowerState(nvmlDevice_t device, nvmlPstates_t* pState) {
  return answer(device, pState, NVML_PSTATE_0);
}

nvmlReturn_t nvmlDeviceGetSupportedPerformanceStates(nvmlDevice_t device, nvmlPstates_t* pstates,
                                                     unsigned int size) {
  return with_gpu(device, [&](const Gpu&) -> nvmlReturn_t {
    const unsigned places = size / sizeof(nvmlPstates_t);
    if (pstates == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (places == 0) return NVML_ERROR_INSUFFICIENT_SIZE;
    pstates[0] = NVML_PSTATE_0;
    for (unsigned i = 1; i < places; ++i) pstates[i] = NVML_PSTATE_UNKNOWN;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetAdaptiveClockInfoStatus(nvmlDevice_t device,
                                                  unsigned int* adaptiveClockStatus) {
  return answer(device, adaptiveClockStatus, NVML_ADAPTIVE_CLOCKING_INFO_STATUS_DISABLED);
}

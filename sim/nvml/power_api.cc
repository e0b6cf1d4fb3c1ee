// Power and temperature (readings.h).
#include "sim/nvml/api.h"
#include "sim/nvml/readings.h"
#include "sim/nvml/readings_over_time.h"

using namespace fargpu::sim::nvml;

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int* power) {
  return answer(device, power, kMilliwatts);
}

nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long* energy) {
  return answer(device, energy, millijoules());
}

nvmlReturn_t nvmlDeviceGetPowerManagementMode(nvmlDevice_t device, nvmlEnableState_t* mode) {
  return answer(device, mode, NVML_FEATURE_ENABLED);
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned int* limit) {
  return answer(device, limit, kMaxMilliwatts);
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device,
                                                          unsigned int* minLimit,
                                                          unsigned int* maxLimit) {
  return answer(device, minLimit, kMinMilliwatts, maxLimit, kMaxMilliwatts);
}

nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t device,
                                                      unsigned int* defaultLimit) {
  return answer(device, defaultLimit, kMaxMilliwatts);
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int* limit) {
  return answer(device, limit, kMaxMilliwatts);
}

nvmlReturn_t nvmlDeviceGetPowerSource(nvmlDevice_t device, nvmlPowerSource_t* powerSource) {
  return answer(device, powerSource, NVML_POWER_SOURCE_AC);
}

// Nothing was ever held back.
nvmlReturn_t nvmlDeviceGetViolationStatus(nvmlDevice_t device, nvmlPerfPolicyType_t perfPolicyType,
                                          nvmlViolationTime_t* violTime) {
  return with_gpu(device, [&](const Gpu&) -> nvmlReturn_t {
    if (static_cast<unsigned>(perfPolicyType) >= NVML_PERF_POLICY_COUNT)
      return NVML_ERROR_INVALID_ARGUMENT;
    return give(violTime, {.referenceTime = microseconds_since_1970(), .violationTime = 0});
  });
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensorType,
                                      unsigned int* temp) {
  return with_gpu(device, [&](const Gpu&) {
    return sensorType == NVML_TEMPERATURE_GPU ? give(temp, kCelsius) : NVML_ERROR_INVALID_ARGUMENT;
  });
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t* temperature) {
  return with_gpu(device, [&](const Gpu&) -> nvmlReturn_t {
    if (temperature == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    const auto sensor = temperature->sensorType;
    if (temperature->version == nvmlTemperature_v1 && sensor != NVML_TEMPERATURE_GPU)
      return NVML_ERROR_INVALID_ARGUMENT;
    return give_version(temperature, nvmlTemperature_v1,
                        [](auto& info) { info.temperature = kCelsius; });
  });
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device,
                                               nvmlTemperatureThresholds_t thresholdType,
                                               unsigned int* temp) {
  return with_gpu(device, [&](const Gpu&) -> nvmlReturn_t {
    switch (thresholdType) {
      case NVML_TEMPERATURE_THRESHOLD_SHUTDOWN:
        return give(temp, kShutdownCelsius);
      case NVML_TEMPERATURE_THRESHOLD_SLOWDOWN:
      case NVML_TEMPERATURE_THRESHOLD_MEM_MAX:
      case NVML_TEMPERATURE_THRESHOLD_GPU_MAX:
        return give(temp, kSlowdownCelsius);
      default:
        return static_cast<unsigned>(thresholdType) < NVML_TEMPERATURE_THRESHOLD_COUNT
                   ? NVML_ERROR_NOT_SUPPORTED
                   : NVML_ERROR_INVALID_ARGUMENT;
    }
  });
}

nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t device,
                                            nvmlMarginTemperature_t* marginTempInfo) {
  return with_gpu(device, [&](const Gpu&) {
    return give_version(marginTempInfo, nvmlMarginTemperature_v1,
                        [](auto& info) { info.marginTemperature = kSlowdownCelsius - kCelsius; });
  });
}

nvmlReturn_t nvmlDeviceGetThermalSettings(nvmlDevice_t device, unsigned int sensorIndex,
                                          nvmlGpuThermalSettings_t* pThermalSettings) {
  return with_gpu(device, [&](const Gpu&) -> nvmlReturn_t {
    if (sensorIndex != 0 && sensorIndex != NVML_THERMAL_TARGET_ALL)
      return NVML_ERROR_INVALID_ARGUMENT;
    nvmlGpuThermalSettings_t settings{};
    settings.count = 1;
    settings.sensor[0] = {NVML_THERMAL_CONTROLLER_GPU_INTERNAL, 0, kSlowdownCelsius, kCelsius,
                          NVML_THERMAL_TARGET_GPU};
    return give(pThermalSettings, settings);
  });
}

// A card of a server: it is cooled by the server's fans.
nvmlReturn_t nvmlDeviceGetNumFans(nvmlDevice_t device, unsigned int* numFans) {
  return answer(device, numFans, 0);
}

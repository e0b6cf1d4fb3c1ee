// Modes of a GPU, instances and virtual GPUs: a GPU without a display.
#include "sim/nvml/api.h"

using namespace fargpu::sim::nvml;

nvmlReturn_t nvmlDeviceGetDisplayMode(nvmlDevice_t device, nvmlEnableState_t* display) {
  return answer(device, display, NVML_FEATURE_DISABLED);
}

nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t device, nvmlEnableState_t* isActive) {
  return answer(device, isActive, NVML_FEATURE_DISABLED);
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t* mode) {
  return answer(device, mode, NVML_FEATURE_ENABLED);
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t* mode) {
  return with_gpu(device, [&](const Gpu& gpu) {
    return give(mode, gpu.prohibited ? NVML_COMPUTEMODE_PROHIBITED : NVML_COMPUTEMODE_DEFAULT);
  });
}

nvmlReturn_t nvmlDeviceGetAPIRestriction(nvmlDevice_t device, nvmlRestrictedAPI_t apiType,
                                         nvmlEnableState_t* isRestricted) {
  return with_gpu(device, [&](const Gpu&) -> nvmlReturn_t {
    if (static_cast<unsigned>(apiType) >= NVML_RESTRICTED_API_COUNT)
      return NVML_ERROR_INVALID_ARGUMENT;
    return give(isRestricted, NVML_FEATURE_ENABLED);
  });
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int* currentMode,
                                  unsigned int* pendingMode) {
  return with_gpu(device, [&](const Gpu& gpu) -> nvmlReturn_t {
    if (gpu.instance >= 0) return NVML_ERROR_NOT_SUPPORTED;
    const unsigned mode = gpu.instances > 0 ? NVML_DEVICE_MIG_ENABLE : NVML_DEVICE_MIG_DISABLE;
    return give(currentMode, mode, pendingMode, mode);
  });
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int* count) {
  return with_gpu(device, [&](const Gpu& gpu) {
    return give(count, gpu.instance < 0 ? static_cast<unsigned>(gpu.instances) : 0);
  });
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int* isMigDevice) {
  return with_gpu(device, [&](const Gpu& gpu) { return give(isMigDevice, gpu.instance >= 0); });
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                                 nvmlDevice_t* migDevice) {
  return with_gpu(device, [&](const Gpu& gpu) -> nvmlReturn_t {
    if (migDevice == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    for (const Gpu& unit : units())
      if (gpu.instance < 0 && unit.index == gpu.index && unit.instance == static_cast<int>(index))
        return give(migDevice, handle_of(unit));
    return NVML_ERROR_NOT_FOUND;
  });
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t migDevice,
                                                          nvmlDevice_t* device) {
  return with_gpu(migDevice, [&](const Gpu& gpu) -> nvmlReturn_t {
    if (gpu.instance < 0) return NVML_ERROR_INVALID_ARGUMENT;
    return give(device, handle_of(gpus()[static_cast<size_t>(gpu.index)]));
  });
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int* id) {
  return with_gpu(device, [&](const Gpu& gpu) -> nvmlReturn_t {
    if (gpu.instance < 0) return NVML_ERROR_NOT_SUPPORTED;
    return give(id, static_cast<unsigned>(gpu.instance) + 1);
  });
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int* id) {
  return with_gpu(device, [&](const Gpu& gpu) -> nvmlReturn_t {
    if (gpu.instance < 0) return NVML_ERROR_NOT_SUPPORTED;
    return give(id, 0);
  });
}

nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device,
                                             nvmlGpuVirtualizationMode_t* pVirtualMode) {
  return answer(device, pVirtualMode, NVML_GPU_VIRTUALIZATION_MODE_NONE);
}

nvmlReturn_t nvmlDeviceGetGridLicensableFeatures_v4(
    nvmlDevice_t device, nvmlGridLicensableFeatures_t* pGridLicensableFeatures) {
  return answer(device, pGridLicensableFeatures, nvmlGridLicensableFeatures_t{});
}

// Modes of a GPU, instances and virtual GPUs: a GPU without a display that is used as a whole.
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
  return answer(device, currentMode, NVML_DEVICE_MIG_DISABLE, pendingMode, NVML_DEVICE_MIG_DISABLE);
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int* count) {
  return answer(device, count, 0);
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int* isMigDevice) {
  return answer(device, isMigDevice, 0);
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int,
                                                 nvmlDevice_t* migDevice) {
  return with_gpu(device, [&](const Gpu&) {
    return migDevice == nullptr ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_NOT_FOUND;
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

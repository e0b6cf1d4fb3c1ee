// ECC is on and has never found an error.
#include "sim/nvml/api.h"

using namespace fargpu::sim::nvml;

namespace {

bool known(nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter) {
  return static_cast<unsigned>(type) < NVML_MEMORY_ERROR_TYPE_COUNT &&
         static_cast<unsigned>(counter) < NVML_ECC_COUNTER_TYPE_COUNT;
}

}  // namespace

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t* current,
                                  nvmlEnableState_t* pending) {
  return answer(device, current, NVML_FEATURE_ENABLED, pending, NVML_FEATURE_ENABLED);
}

nvmlReturn_t nvmlDeviceGetDefaultEccMode(nvmlDevice_t device, nvmlEnableState_t* defaultMode) {
  return answer(device, defaultMode, NVML_FEATURE_ENABLED);
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t errorType,
                                         nvmlEccCounterType_t counterType,
                                         unsigned long long* eccCounts) {
  return with_gpu(device, [&](const Gpu&) {
    return known(errorType, counterType) ? give(eccCounts, 0) : NVML_ERROR_INVALID_ARGUMENT;
  });
}

nvmlReturn_t nvmlDeviceGetDetailedEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t errorType,
                                            nvmlEccCounterType_t counterType,
                                            nvmlEccErrorCounts_t* eccCounts) {
  return with_gpu(device, [&](const Gpu&) {
    return known(errorType, counterType) ? give(eccCounts, {}) : NVML_ERROR_INVALID_ARGUMENT;
  });
}

nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, nvmlMemoryErrorType_t errorType,
                                             nvmlEccCounterType_t counterType,
                                             nvmlMemoryLocation_t locationType,
                                             unsigned long long* count) {
  return with_gpu(device, [&](const Gpu&) -> nvmlReturn_t {
    if (!known(errorType, counterType) ||
        static_cast<unsigned>(locationType) >= NVML_MEMORY_LOCATION_COUNT)
      return NVML_ERROR_INVALID_ARGUMENT;
    return give(count, 0);
  });
}

nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device,
                                             nvmlEccSramErrorStatus_t* status) {
  return with_gpu(device, [&](const Gpu&) {
    return give_version(status, nvmlEccSramErrorStatus_v1, [](auto&) {});
  });
}

// Memory of this kind remaps rows: it retires no pages.
nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int* corrRows,
                                       unsigned int* uncRows, unsigned int* isPending,
                                       unsigned int* failureOccurred) {
  return with_gpu(device, [&](const Gpu&) -> nvmlReturn_t {
    if (isPending == nullptr || failureOccurred == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *isPending = *failureOccurred = 0;
    return give(corrRows, 0, uncRows, 0);
  });
}

nvmlReturn_t nvmlDeviceGetRemappedRows_v2(nvmlDevice_t device, nvmlRemappedRowsInfo_v2_t* info) {
  return answer(device, info, nvmlRemappedRowsInfo_v2_t{});
}

nvmlReturn_t nvmlDeviceGetUnrepairableMemoryFlag_v1(nvmlDevice_t device,
                                                    nvmlUnrepairableMemoryStatus_v1_t* status) {
  return answer(device, status, nvmlUnrepairableMemoryStatus_v1_t{});
}

nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device,
                                               nvmlRowRemapperHistogramValues_t* values) {
  return answer(
      device, values,
      nvmlRowRemapperHistogramValues_t{.max = 640, .high = 0, .partial = 0, .low = 0, .none = 0});
}

nvmlReturn_t nvmlDeviceGetRepairStatus(nvmlDevice_t device, nvmlRepairStatus_t* repairStatus) {
  return with_gpu(device, [&](const Gpu&) {
    return give_version(repairStatus, nvmlRepairStatus_v1, [](auto&) {});
  });
}

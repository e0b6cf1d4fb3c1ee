// Values by number.
#include "sim/nvml/api.h"
#include "sim/nvml/readings.h"
#include "sim/nvml/readings_over_time.h"

using namespace fargpu::sim::nvml;

namespace {

void set(nvmlFieldValue_t* field, unsigned value) {
  field->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
  field->value.uiVal = value;
  field->nvmlReturn = NVML_SUCCESS;
}

void set_long(nvmlFieldValue_t* field, unsigned long long value) {
  field->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
  field->value.ullVal = value;
  field->nvmlReturn = NVML_SUCCESS;
}

void fill(nvmlFieldValue_t* field) {
  field->timestamp = static_cast<long long>(microseconds_since_1970());
  field->latencyUsec = 0;
  field->value = {};
  field->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
  switch (field->fieldId) {
    case NVML_FI_DEV_ECC_CURRENT:
    case NVML_FI_DEV_ECC_PENDING:
      return set(field, NVML_FEATURE_ENABLED);
    case NVML_FI_DEV_ECC_SBE_VOL_TOTAL:
    case NVML_FI_DEV_ECC_DBE_VOL_TOTAL:
    case NVML_FI_DEV_ECC_SBE_AGG_TOTAL:
    case NVML_FI_DEV_ECC_DBE_AGG_TOTAL:
    case NVML_FI_DEV_PERF_POLICY_POWER:
    case NVML_FI_DEV_PERF_POLICY_THERMAL:
      return set_long(field, 0);
    case NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION:
      return set_long(field, millijoules());
    case NVML_FI_DEV_MEMORY_TEMP:
      return set(field, kCelsius);
    case NVML_FI_DEV_REMAPPED_COR:
    case NVML_FI_DEV_REMAPPED_UNC:
    case NVML_FI_DEV_REMAPPED_PENDING:
    case NVML_FI_DEV_REMAPPED_FAILURE:
    case NVML_FI_DEV_PCIE_REPLAY_COUNTER:
    case NVML_FI_DEV_NVLINK_LINK_COUNT:
    case NVML_FI_DEV_C2C_LINK_COUNT:
      return set(field, 0);
    case NVML_FI_DEV_POWER_AVERAGE:
    case NVML_FI_DEV_POWER_INSTANT:
      return set(field, kMilliwatts);
    case NVML_FI_DEV_POWER_MIN_LIMIT:
      return set(field, kMinMilliwatts);
    case NVML_FI_DEV_POWER_MAX_LIMIT:
    case NVML_FI_DEV_POWER_DEFAULT_LIMIT:
    case NVML_FI_DEV_POWER_CURRENT_LIMIT:
    case NVML_FI_DEV_POWER_REQUESTED_LIMIT:
      return set(field, kMaxMilliwatts);
    default:
      if (field->fieldId == 0 || field->fieldId >= NVML_FI_MAX)
        field->nvmlReturn = NVML_ERROR_INVALID_ARGUMENT;
  }
}

}  // namespace

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int valuesCount,
                                      nvmlFieldValue_t* values) {
  return with_gpu(device, [&](const Gpu&) -> nvmlReturn_t {
    if (valuesCount <= 0 || values == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < valuesCount; ++i) fill(&values[i]);
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t* gpmSupport) {
  return with_gpu(device, [&](const Gpu&) {
    return give_version(gpmSupport, NVML_GPM_SUPPORT_VERSION, [](auto&) {});
  });
}

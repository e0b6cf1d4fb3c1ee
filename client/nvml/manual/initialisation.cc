#include "client/nvml/manual/common.h"
#include "client/nvml/manual/nvidia_smi.h"
#include "common/base/log.h"
#include "schema/nvml/error_text.h"

namespace fargpu::nvml {

nvmlReturn_t manual_nvmlInit() { return initialise(); }

nvmlReturn_t manual_nvmlInit_v2() { return initialise(); }

nvmlReturn_t manual_nvmlInitWithFlags(unsigned int flags) {
  // A job always has a GPU, and attaches none.
  if ((flags & ~(NVML_INIT_FLAG_NO_GPUS | NVML_INIT_FLAG_NO_ATTACH)) != 0)
    return NVML_ERROR_INVALID_ARGUMENT;
  return initialise();
}

nvmlReturn_t manual_nvmlShutdown() { return shut_down(); }

const char* manual_nvmlErrorString(nvmlReturn_t result) { return nvml_error_text(result); }

nvmlReturn_t manual_nvmlInternalGetExportTable(const void** table, const void* id) {
  if (table == nullptr || id == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (is_nvidia_smi_table(id)) {
    *table = nvidia_smi_table();
    return NVML_SUCCESS;
  }
  *table = nullptr;
  static Refused refused{"nvmlInternalGetExportTable"};
  if (!refused.told.exchange(true))
    log::info("{}: a table that is not published was asked for; there is none", refused.name);
  return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t manual_nvmlUnitGetCount(unsigned int* unitCount) {
  return with_library([&](Library&) { return give(unitCount, 0U); });
}

}  // namespace fargpu::nvml

#include "client/nvml/entry.h"

#include "common/base/log.h"

namespace fargpu::nvml {

nvmlReturn_t failed(const char* what) {
  log::error("a call of NVML failed: {}", what);
  return NVML_ERROR_UNKNOWN;
}

nvmlReturn_t Refusal::denied(Refused& function) {
  if (result_ != NVML_SUCCESS) return result_;
  if (!function.told.exchange(true))
    log::info("{} is refused: what it sets belongs to the server", function.name);
  return NVML_ERROR_NO_PERMISSION;
}

nvmlReturn_t Refusal::unsupported(Refused& function) {
  if (result_ != NVML_SUCCESS) return result_;
  if (!function.told.exchange(true)) log::warn("{} is not supported", function.name);
  return NVML_ERROR_NOT_SUPPORTED;
}

}  // namespace fargpu::nvml

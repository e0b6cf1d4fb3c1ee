#include "sim/nvml/api.h"

namespace fargpu::sim::nvml {

nvmlReturn_t give_text(char* out, unsigned length, std::string_view text) {
  if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (length <= text.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
  std::memcpy(out, text.data(), text.size());
  out[text.size()] = '\0';
  return NVML_SUCCESS;
}

nvmlReturn_t give_empty_list(nvmlDevice_t device, unsigned* count) {
  return with_gpu(device, [&](const Gpu&) { return give(count, 0U); });
}

nvmlReturn_t answer_text(nvmlDevice_t device, char* out, unsigned length, std::string_view text) {
  return with_gpu(device, [&](const Gpu&) { return give_text(out, length, text); });
}

nvmlReturn_t refuse(nvmlReturn_t error) { return initialized() ? error : NVML_ERROR_UNINITIALIZED; }

}  // namespace fargpu::sim::nvml

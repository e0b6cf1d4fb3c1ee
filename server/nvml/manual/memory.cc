#include "generated/server/nvml/serve.h"
#include "generated/server/nvml/table.h"
#include "server/nvml/desk.h"

namespace fargpu::server {

nvmlReturn_t manual_nvmlDeviceGetMemoryInfo(Desk& desk, nvmlDevice_t device, nvmlMemory_t* memory) {
  if (desk.nvml().nvmlDeviceGetMemoryInfo == nullptr) return NVML_ERROR_FUNCTION_NOT_FOUND;
  if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const nvmlReturn_t result = desk.nvml().nvmlDeviceGetMemoryInfo(device, memory);
  if (result != NVML_SUCCESS) return result;
  const Desk::Memory job = desk.memory(device, memory->total, memory->free);
  memory->total = job.total;
  memory->used = job.used;
  memory->free = job.free;
  return result;
}

nvmlReturn_t manual_nvmlDeviceGetMemoryInfo_v2(Desk& desk, nvmlDevice_t device,
                                               nvmlMemory_v2_t* memory) {
  if (desk.nvml().nvmlDeviceGetMemoryInfo_v2 == nullptr) return NVML_ERROR_FUNCTION_NOT_FOUND;
  if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const nvmlReturn_t result = desk.nvml().nvmlDeviceGetMemoryInfo_v2(device, memory);
  if (result != NVML_SUCCESS) return result;
  const Desk::Memory job = desk.memory(device, memory->total, memory->free);
  // What the driver keeps for itself is none of a limited job's memory.
  if (job.total < memory->total) memory->reserved = 0;
  memory->total = job.total;
  memory->used = job.used;
  memory->free = job.free;
  return result;
}

}  // namespace fargpu::server

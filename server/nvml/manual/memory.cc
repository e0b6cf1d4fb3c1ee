#include "generated/server/nvml/serve.h"
#include "generated/server/nvml/table.h"
#include "server/nvml/desk.h"

namespace fargpu::server {

nvmlReturn_t manual_nvmlDeviceGetMemoryInfo(Desk& desk, nvmlDevice_t device, nvmlMemory_t* memory) {
  if (desk.nvml().nvmlDeviceGetMemoryInfo == nullptr) return NVML_ERROR_FUNCTION_NOT_FOUND;
  if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  desk.look();
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
  desk.look();
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

nvmlReturn_t manual_nvmlDeviceGetBAR1MemoryInfo(Desk& desk, nvmlDevice_t device,
                                                nvmlBAR1Memory_t* bar1Memory) {
  if (desk.nvml().nvmlDeviceGetBAR1MemoryInfo == nullptr) return NVML_ERROR_FUNCTION_NOT_FOUND;
  const nvmlReturn_t result = desk.nvml().nvmlDeviceGetBAR1MemoryInfo(device, bar1Memory);
  if (result != NVML_SUCCESS || bar1Memory == nullptr) return result;
  // The program's host has no such window, so the job uses nothing of it.
  bar1Memory->bar1Used = 0;
  bar1Memory->bar1Free = bar1Memory->bar1Total;
  return result;
}

nvmlReturn_t manual_nvmlDeviceGetAttributes_v2(Desk& desk, nvmlDevice_t device,
                                               nvmlDeviceAttributes_t* attributes) {
  if (desk.nvml().nvmlDeviceGetAttributes_v2 == nullptr) return NVML_ERROR_FUNCTION_NOT_FOUND;
  const nvmlReturn_t result = desk.nvml().nvmlDeviceGetAttributes_v2(device, attributes);
  if (result != NVML_SUCCESS || attributes == nullptr) return result;
  attributes->memorySizeMB = desk.limited(attributes->memorySizeMB << 20) >> 20;
  return result;
}

nvmlReturn_t manual_nvmlDeviceGetConfComputeMemSizeInfo(Desk& desk, nvmlDevice_t device,
                                                        nvmlConfComputeMemSizeInfo_t* memInfo) {
  if (desk.nvml().nvmlDeviceGetConfComputeMemSizeInfo == nullptr)
    return NVML_ERROR_FUNCTION_NOT_FOUND;
  const nvmlReturn_t result = desk.nvml().nvmlDeviceGetConfComputeMemSizeInfo(device, memInfo);
  if (result != NVML_SUCCESS || memInfo == nullptr) return result;
  memInfo->protectedMemSizeKib = desk.limited(memInfo->protectedMemSizeKib << 10) >> 10;
  memInfo->unprotectedMemSizeKib = desk.limited(memInfo->unprotectedMemSizeKib << 10) >> 10;
  return result;
}

nvmlReturn_t manual_nvmlDeviceGetConfComputeProtectedMemoryUsage(Desk& desk, nvmlDevice_t device,
                                                                 nvmlMemory_t* memory) {
  if (desk.nvml().nvmlDeviceGetConfComputeProtectedMemoryUsage == nullptr)
    return NVML_ERROR_FUNCTION_NOT_FOUND;
  desk.look();
  const nvmlReturn_t result =
      desk.nvml().nvmlDeviceGetConfComputeProtectedMemoryUsage(device, memory);
  if (result != NVML_SUCCESS || memory == nullptr) return result;
  const Desk::Memory job = desk.memory(device, memory->total, memory->free);
  memory->total = job.total;
  memory->used = job.used;
  memory->free = job.free;
  return result;
}

}  // namespace fargpu::server

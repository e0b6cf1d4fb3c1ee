// Device memory. All of it is free where the processes of the host do not share their books
// (FARGPU_SIM_SHARED).
#include "sim/driver/device.h"
#include "sim/nvml/api.h"
#include "sim/nvml/readings.h"

using namespace fargpu::sim::nvml;

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  return with_gpu(device, [&](const Gpu& gpu) {
    const size_t used = gpu.used_bytes();
    return give(memory, {.total = gpu.memory_bytes, .free = gpu.memory_bytes - used, .used = used});
  });
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory) {
  return with_gpu(device, [&](const Gpu& gpu) {
    return give_version(memory, nvmlMemory_v2, [&](nvmlMemory_v2_t& info) {
      info.total = gpu.memory_bytes;
      info.used = gpu.used_bytes();
      info.free = info.total - info.used;
    });
  });
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t* bar1Memory) {
  return answer(device, bar1Memory,
                nvmlBAR1Memory_t{.bar1Total = kBar1Bytes, .bar1Free = kBar1Bytes, .bar1Used = 0});
}

nvmlReturn_t nvmlDeviceGetMemoryBusWidth(nvmlDevice_t device, unsigned int* busWidth) {
  return with_gpu(device, [&](const Gpu& gpu) {
    return give(busWidth, gpu.attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH));
  });
}

nvmlReturn_t nvmlDeviceGetAddressingMode(nvmlDevice_t device, nvmlDeviceAddressingMode_t* mode) {
  return with_gpu(device, [&](const Gpu&) {
    return give_version(mode, nvmlDeviceAddressingMode_v1,
                        [](auto& info) { info.value = NVML_DEVICE_ADDRESSING_MODE_NONE; });
  });
}

nvmlReturn_t nvmlDeviceGetC2cModeInfoV(nvmlDevice_t device, nvmlC2cModeInfo_v1_t* c2cModeInfo) {
  return answer(device, c2cModeInfo, nvmlC2cModeInfo_v1_t{});
}

nvmlReturn_t nvmlDeviceGetConfComputeMemSizeInfo(nvmlDevice_t device,
                                                 nvmlConfComputeMemSizeInfo_t* memInfo) {
  return with_gpu(device, [&](const Gpu& gpu) {
    return give(memInfo,
                {.protectedMemSizeKib = 0, .unprotectedMemSizeKib = gpu.memory_bytes >> 10});
  });
}

nvmlReturn_t nvmlDeviceGetConfComputeProtectedMemoryUsage(nvmlDevice_t device,
                                                          nvmlMemory_t* memory) {
  return answer(device, memory, nvmlMemory_t{});
}

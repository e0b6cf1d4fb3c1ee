// What a GPU is.
#include "sim/driver/device.h"
#include "sim/nvml/api.h"
#include "sim/nvml/readings.h"

using namespace fargpu::sim::nvml;

namespace {

nvmlDeviceArchitecture_t architecture(int capability) {
  if (capability < 80) return NVML_DEVICE_ARCH_TURING;
  if (capability < 89) return NVML_DEVICE_ARCH_AMPERE;
  if (capability == 89) return NVML_DEVICE_ARCH_ADA;
  return capability < 100 ? NVML_DEVICE_ARCH_HOPPER : NVML_DEVICE_ARCH_BLACKWELL;
}

}  // namespace

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char* name, unsigned int length) {
  return with_gpu(device, [&](const Gpu& gpu) { return give_text(name, length, gpu.name); });
}

nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, nvmlBrandType_t* type) {
  return answer(device, type, NVML_BRAND_NVIDIA);
}

nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char* serial, unsigned int length) {
  return with_gpu(device, [&](const Gpu& gpu) { return give_text(serial, length, gpu.serial()); });
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid, unsigned int length) {
  return with_gpu(device, [&](const Gpu& gpu) { return give_text(uuid, length, gpu.uuid); });
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int* minorNumber) {
  return with_gpu(device, [&](const Gpu& gpu) { return give(minorNumber, gpu.index); });
}

nvmlReturn_t nvmlDeviceGetModuleId(nvmlDevice_t device, unsigned int* moduleId) {
  return with_gpu(device, [&](const Gpu& gpu) { return give(moduleId, gpu.index); });
}

nvmlReturn_t nvmlDeviceGetBoardPartNumber(nvmlDevice_t device, char* partNumber,
                                          unsigned int length) {
  return answer_text(device, partNumber, length, kPartNumber);
}

nvmlReturn_t nvmlDeviceGetBoardId(nvmlDevice_t device, unsigned int* boardId) {
  return with_gpu(device, [&](const Gpu& gpu) { return give(boardId, gpu.bus() << 8); });
}

nvmlReturn_t nvmlDeviceGetMultiGpuBoard(nvmlDevice_t device, unsigned int* multiGpuBool) {
  return answer(device, multiGpuBool, 0);
}

nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t device1, nvmlDevice_t device2, int* onSameBoard) {
  return with_gpu(device1, [&](const Gpu& one) {
    return with_gpu(device2, [&](const Gpu& two) { return give(onSameBoard, &one == &two); });
  });
}

nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char* version, unsigned int length) {
  return answer_text(device, version, length, kVbiosVersion);
}

nvmlReturn_t nvmlDeviceGetInforomVersion(nvmlDevice_t device, nvmlInforomObject_t object,
                                         char* version, unsigned int length) {
  return with_gpu(device, [&](const Gpu&) -> nvmlReturn_t {
    if (static_cast<unsigned>(object) >= NVML_INFOROM_COUNT) return NVML_ERROR_INVALID_ARGUMENT;
    return give_text(version, length, kInforomObject);
  });
}

nvmlReturn_t nvmlDeviceGetInforomImageVersion(nvmlDevice_t device, char* version,
                                              unsigned int length) {
  return answer_text(device, version, length, kInforomImage);
}

nvmlReturn_t nvmlDeviceValidateInforom(nvmlDevice_t device) {
  return with_gpu(device, [](const Gpu&) { return NVML_SUCCESS; });
}

nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t device, char* version) {
  return answer_text(device, version, NVML_GSP_FIRMWARE_VERSION_BUF_SIZE, kDriverVersion);
}

nvmlReturn_t nvmlDeviceGetGspFirmwareMode(nvmlDevice_t device, unsigned int* isEnabled,
                                          unsigned int* defaultMode) {
  return answer(device, isEnabled, 1, defaultMode, 1);
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t* arch) {
  return with_gpu(device,
                  [&](const Gpu& gpu) { return give(arch, architecture(gpu.compute_capability)); });
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int* major, int* minor) {
  return with_gpu(device, [&](const Gpu& gpu) {
    return give(major, gpu.compute_capability / 10, minor, gpu.compute_capability % 10);
  });
}

nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned int* numCores) {
  return with_gpu(device, [&](const Gpu& gpu) {
    return give(numCores,
                gpu.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) * kCoresPerMultiprocessor);
  });
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t* attributes) {
  return with_gpu(device, [&](const Gpu& gpu) {
    nvmlDeviceAttributes_t all{};
    all.multiprocessorCount = gpu.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    all.sharedCopyEngineCount = gpu.attribute(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT);
    all.memorySizeMB = gpu.memory_bytes >> 20;
    if (gpu.instance >= 0) all.gpuInstanceSliceCount = all.computeInstanceSliceCount = 1;
    return give(attributes, all);
  });
}

nvmlReturn_t nvmlDeviceGetCapabilities(nvmlDevice_t device, nvmlDeviceCapabilities_t* caps) {
  return with_gpu(device, [&](const Gpu&) {
    return give_version(caps, nvmlDeviceCapabilities_v1, [](auto&) {});
  });
}

// Which GPUs there are.
#include <algorithm>
#include <cstdio>

#include "sim/nvml/api.h"

using namespace fargpu::sim::nvml;

namespace {

template <typename Fits>
nvmlReturn_t find(nvmlDevice_t* device, Fits&& fits) {
  const auto all = units();
  const auto found = std::find_if(all.begin(), all.end(), fits);
  if (found == all.end()) return NVML_ERROR_NOT_FOUND;
  *device = handle_of(*found);
  return NVML_SUCCESS;
}

// "GPU-..." or "MIG-..." as the 16 bytes that it spells.
fargpu::sim::Uuid bytes_of(const Gpu& gpu) {
  return fargpu::sim::device_uuid(gpu.compute_capability,
                                  fargpu::sim::unit_of(gpu.index, gpu.instance));
}

}  // namespace

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int* deviceCount) {
  return with_library([&] { return give(deviceCount, static_cast<unsigned>(gpus().size())); });
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int* deviceCount) {
  return nvmlDeviceGetCount_v2(deviceCount);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t* device) {
  return with_library([&]() -> nvmlReturn_t {
    if (index >= gpus().size()) return NVML_ERROR_INVALID_ARGUMENT;
    return give(device, handle_of(gpus()[index]));
  });
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t* device) {
  return nvmlDeviceGetHandleByIndex_v2(index, device);
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char* serial, nvmlDevice_t* device) {
  return with_library([&]() -> nvmlReturn_t {
    if (serial == nullptr || device == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    return find(device, [&](const Gpu& gpu) { return gpu.serial() == serial; });
  });
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* device) {
  return with_library([&]() -> nvmlReturn_t {
    if (uuid == nullptr || device == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    return find(device, [&](const Gpu& gpu) { return gpu.uuid == uuid; });
  });
}

nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t* uuid, nvmlDevice_t* device) {
  return with_library([&]() -> nvmlReturn_t {
    if (uuid == nullptr || device == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (uuid->version != nvmlUUID_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (uuid->type == NVML_UUID_TYPE_ASCII) {
      const std::string_view text(uuid->value.str, strnlen(uuid->value.str, sizeof(uuid->value)));
      return find(device, [&](const Gpu& gpu) { return gpu.uuid == text; });
    }
    if (uuid->type != NVML_UUID_TYPE_BINARY) return NVML_ERROR_INVALID_ARGUMENT;
    return find(device, [&](const Gpu& gpu) {
      const auto bytes = bytes_of(gpu);
      return std::memcmp(bytes.data(), uuid->value.bytes, bytes.size()) == 0;
    });
  });
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* pciBusId, nvmlDevice_t* device) {
  return with_library([&]() -> nvmlReturn_t {
    if (pciBusId == nullptr || device == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    unsigned domain = 0, bus = 0, slot = 0, function = 0;
    const bool parsed =
        std::sscanf(pciBusId, "%x:%x:%x.%x", &domain, &bus, &slot, &function) == 4 ||
        (domain = function = 0, std::sscanf(pciBusId, "%x:%x.%x", &bus, &slot, &function) == 3) ||
        (function = 0, std::sscanf(pciBusId, "%x:%x:%x", &domain, &bus, &slot) == 3);
    if (!parsed) return NVML_ERROR_INVALID_ARGUMENT;
    return find(device, [&](const Gpu& gpu) {
      return gpu.bus() == bus && domain == 0 && slot == 0 && function == 0;
    });
  });
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char* pciBusId, nvmlDevice_t* device) {
  return nvmlDeviceGetHandleByPciBusId_v2(pciBusId, device);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int* index) {
  return with_gpu(device, [&](const Gpu& gpu) { return give(index, gpu.index); });
}

// Where a GPU is, and its link.
#include <fmt/core.h>

#include <cstddef>

#include "sim/nvml/api.h"
#include "sim/nvml/readings.h"

using namespace fargpu::sim::nvml;

namespace {

void put(char* out, size_t size, std::string_view text) {
  give_text(out, static_cast<unsigned>(size), text);
}

// The first `size` bytes of it: older callers have room for no more.
nvmlReturn_t give_place(nvmlDevice_t device, nvmlPciInfo_t* pci, size_t size) {
  return with_gpu(device, [&](const Gpu& gpu) -> nvmlReturn_t {
    if (pci == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlPciInfo_t info{};
    put(info.busIdLegacy, sizeof(info.busIdLegacy), fmt::format("0000:{:02X}:00.0", gpu.bus()));
    put(info.busId, sizeof(info.busId), fmt::format("00000000:{:02X}:00.0", gpu.bus()));
    info.bus = gpu.bus();
    info.pciDeviceId = kPciDevice;
    info.pciSubSystemId = kPciSubsystem;
    std::memcpy(static_cast<void*>(pci), &info, size);
    return NVML_SUCCESS;
  });
}

}  // namespace

static_assert(offsetof(nvmlPciInfo_t, pciDeviceId) == offsetof(nvmlPciInfo_v1_t, pciDeviceId) &&
              offsetof(nvmlPciInfo_t, busId) == offsetof(nvmlPciInfo_v2_t, reserved));

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  return give_place(device, pci, sizeof(nvmlPciInfo_t));
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  return give_place(device, pci, offsetof(nvmlPciInfo_v2_t, reserved));
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  return give_place(device, pci, sizeof(nvmlPciInfo_v1_t));
}

nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t* pci) {
  return with_gpu(device, [&](const Gpu& gpu) {
    return give_version(pci, nvmlPciInfoExt_v1, [&](nvmlPciInfoExt_t& info) {
      info.bus = gpu.bus();
      info.pciDeviceId = kPciDevice;
      info.pciSubSystemId = kPciSubsystem;
      info.baseClass = 3;  // a display controller
      info.subClass = 2;   // that drives no display
      put(info.busId, sizeof(info.busId), fmt::format("00000000:{:02X}:00.0", gpu.bus()));
    });
  });
}

nvmlReturn_t nvmlDeviceGetBusType(nvmlDevice_t device, nvmlBusType_t* type) {
  return answer(device, type, NVML_BUS_TYPE_PCIE);
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int* maxLinkGen) {
  return answer(device, maxLinkGen, kPciGeneration);
}

nvmlReturn_t nvmlDeviceGetGpuMaxPcieLinkGeneration(nvmlDevice_t device,
                                                   unsigned int* maxLinkGenDevice) {
  return answer(device, maxLinkGenDevice, kPciGeneration);
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned int* currLinkGen) {
  return answer(device, currLinkGen, kPciGeneration);
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned int* maxLinkWidth) {
  return answer(device, maxLinkWidth, kPciLanes);
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned int* currLinkWidth) {
  return answer(device, currLinkWidth, kPciLanes);
}

nvmlReturn_t nvmlDeviceGetPcieLinkMaxSpeed(nvmlDevice_t device, unsigned int* maxSpeed) {
  return answer(device, maxSpeed, NVML_PCIE_LINK_MAX_SPEED_32000MBPS);
}

nvmlReturn_t nvmlDeviceGetPcieSpeed(nvmlDevice_t device, unsigned int* pcieSpeed) {
  return answer(device, pcieSpeed, kPciMegabits);
}

nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, nvmlPcieUtilCounter_t counter,
                                         unsigned int* value) {
  return with_gpu(device, [&](const Gpu&) -> nvmlReturn_t {
    if (static_cast<unsigned>(counter) >= NVML_PCIE_UTIL_COUNT) return NVML_ERROR_INVALID_ARGUMENT;
    return give(value, 0);
  });
}

nvmlReturn_t nvmlDeviceGetPcieReplayCounter(nvmlDevice_t device, unsigned int* value) {
  return answer(device, value, 0);
}

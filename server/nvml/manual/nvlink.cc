#include <algorithm>

#include "generated/server/nvml/serve.h"
#include "generated/server/nvml/table.h"
#include "server/nvml/desk.h"

namespace fargpu::server {
namespace {

bool is_of_the_job(const Desk& desk, const nvmlPciInfo_t& pci) {
  if (desk.nvml().nvmlDeviceGetPciInfo_v3 == nullptr) return false;
  return std::any_of(desk.devices().begin(), desk.devices().end(), [&](nvmlDevice_t device) {
    nvmlPciInfo_t own{};
    return desk.nvml().nvmlDeviceGetPciInfo_v3(device, &own) == NVML_SUCCESS &&
           own.domain == pci.domain && own.bus == pci.bus && own.device == pci.device;
  });
}

bool is_switch(const NvmlTable& nvml, nvmlDevice_t device, unsigned int link) {
  nvmlIntNvLinkDeviceType_t type = NVML_NVLINK_DEVICE_TYPE_UNKNOWN;
  return nvml.nvmlDeviceGetNvLinkRemoteDeviceType != nullptr &&
         nvml.nvmlDeviceGetNvLinkRemoteDeviceType(device, link, &type) == NVML_SUCCESS &&
         type == NVML_NVLINK_DEVICE_TYPE_SWITCH;
}

}  // namespace

nvmlReturn_t manual_nvmlDeviceGetNvLinkRemotePciInfo_v2(Desk& desk, nvmlDevice_t device,
                                                        unsigned int link, nvmlPciInfo_t* pci) {
  const NvmlTable& nvml = desk.nvml();
  if (nvml.nvmlDeviceGetNvLinkRemotePciInfo_v2 == nullptr) return NVML_ERROR_FUNCTION_NOT_FOUND;
  const nvmlReturn_t result = nvml.nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link, pci);
  if (result != NVML_SUCCESS || pci == nullptr) return result;
  if (is_of_the_job(desk, *pci) || is_switch(nvml, device, link)) return result;
  *pci = {};
  return NVML_ERROR_NOT_SUPPORTED;
}

}  // namespace fargpu::server

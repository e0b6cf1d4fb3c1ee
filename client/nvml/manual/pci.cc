#include <fmt/core.h>

#include <cstring>
#include <string>

#include "client/nvml/manual/common.h"

namespace fargpu::nvml {
namespace {

// "00000000:65:00.0" in another domain.
template <size_t kRoom>
void put_domain(char (&text)[kRoom], uint32_t domain, int digits) {
  text[kRoom - 1] = '\0';
  const char* const rest = std::strchr(text, ':');
  if (rest == nullptr) return;
  const std::string changed = fmt::format("{:0{}X}{}", domain, digits, rest);
  if (changed.size() < kRoom) std::memcpy(text, changed.c_str(), changed.size() + 1);
}

// What is at the other end of a link is on the same server.
uint32_t domain_beside(nvmlDevice_t handle, const nvmlPciInfo_t& pci) {
  uint32_t domain = pci.domain;
  with_device(handle, [&](Library& library, const Device& device) {
    if (device.told.domain == pci.domain) domain = device.domain;
    for (const Device& other : library.devices()) {
      if (other.connection == device.connection && other.told.domain == pci.domain &&
          other.told.bus == pci.bus && other.told.device == pci.device)
        domain = other.domain;
    }
    return NVML_SUCCESS;
  });
  return domain;
}

void move_to(uint32_t domain, nvmlPciInfo_t* pci) {
  if (pci->domain == domain) return;
  pci->domain = domain;
  put_domain(pci->busId, domain, 8);
  put_domain(pci->busIdLegacy, domain, 4);
}

uint32_t domain_of(nvmlDevice_t handle) {
  uint32_t domain = 0;
  with_device(handle, [&](Library&, const Device& device) {
    domain = device.domain;
    return NVML_SUCCESS;
  });
  return domain;
}

// The older layouts begin like the newest one, and end sooner. `ask` gets a place for that, or NULL
// if the caller has given none.
template <typename Old, typename Ask>
nvmlReturn_t shortened(nvmlPciInfo_t* to, Ask&& ask) {
  nvmlPciInfo_t info{};
  const nvmlReturn_t result = ask(to == nullptr ? nullptr : &info);
  if (result != NVML_SUCCESS || to == nullptr) return result;
  Old old{};
  std::memcpy(old.busId, info.busIdLegacy, sizeof old.busId);
  old.domain = info.domain;
  old.bus = info.bus;
  old.device = info.device;
  old.pciDeviceId = info.pciDeviceId;
  if constexpr (requires { old.pciSubSystemId; }) old.pciSubSystemId = info.pciSubSystemId;
  std::memcpy(static_cast<void*>(to), &old, sizeof old);
  return result;
}

}  // namespace

nvmlReturn_t manual_nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  const nvmlReturn_t result = call_nvmlDeviceGetPciInfo_v3(device, pci);
  if (result == NVML_SUCCESS && pci != nullptr) move_to(domain_of(device), pci);
  return result;
}

nvmlReturn_t manual_nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t* pci) {
  const nvmlReturn_t result = call_nvmlDeviceGetPciInfoExt(device, pci);
  const uint32_t domain = result == NVML_SUCCESS ? domain_of(device) : 0;
  if (result != NVML_SUCCESS || pci == nullptr || pci->domain == domain) return result;
  pci->domain = domain;
  put_domain(pci->busId, domain, 8);
  return result;
}

nvmlReturn_t manual_nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  return shortened<nvmlPciInfo_v1_t>(
      pci, [&](nvmlPciInfo_t* info) { return manual_nvmlDeviceGetPciInfo_v3(device, info); });
}

nvmlReturn_t manual_nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  return shortened<nvmlPciInfo_v2_t>(
      pci, [&](nvmlPciInfo_t* info) { return manual_nvmlDeviceGetPciInfo_v3(device, info); });
}

nvmlReturn_t manual_nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link,
                                                        nvmlPciInfo_t* pci) {
  const nvmlReturn_t result = call_nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link, pci);
  if (result == NVML_SUCCESS && pci != nullptr) move_to(domain_beside(device, *pci), pci);
  return result;
}

nvmlReturn_t manual_nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t device, unsigned int link,
                                                     nvmlPciInfo_t* pci) {
  return shortened<nvmlPciInfo_v2_t>(pci, [&](nvmlPciInfo_t* info) {
    return manual_nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link, info);
  });
}

}  // namespace fargpu::nvml

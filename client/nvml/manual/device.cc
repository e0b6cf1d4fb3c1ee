#include <cctype>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "client/nvml/manual/common.h"

namespace fargpu::nvml {
namespace {

// The first device for which `is_it` holds.
template <typename Predicate>
nvmlReturn_t find(nvmlDevice_t* handle, Predicate&& is_it) {
  return with_library([&](Library& library) {
    if (handle == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    for (const Device& device : library.devices()) {
      if (is_it(device)) return give(handle, Library::handle(device));
    }
    return NVML_ERROR_NOT_FOUND;
  });
}

bool same_text(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

nvmlReturn_t by_uuid(std::string_view uuid, nvmlDevice_t* device) {
  return find(device, [&](const Device& each) { return same_text(each.uuid, uuid); });
}

}  // namespace

nvmlReturn_t manual_nvmlDeviceGetCount_v2(unsigned int* deviceCount) {
  return with_library([&](Library& library) {
    return give(deviceCount, static_cast<unsigned int>(library.devices().size()));
  });
}

nvmlReturn_t manual_nvmlDeviceGetCount(unsigned int* deviceCount) {
  return manual_nvmlDeviceGetCount_v2(deviceCount);
}

nvmlReturn_t manual_nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t* device) {
  return with_library([&](Library& library) {
    if (device == nullptr || index >= library.devices().size()) return NVML_ERROR_INVALID_ARGUMENT;
    return give(device, Library::handle(library.devices()[index]));
  });
}

nvmlReturn_t manual_nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t* device) {
  return manual_nvmlDeviceGetHandleByIndex_v2(index, device);
}

nvmlReturn_t manual_nvmlDeviceGetHandleBySerial(const char* serial, nvmlDevice_t* device) {
  return with_library([&](Library& library) {
    if (serial == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    const auto has_it = [&](const Device& each) {
      return !each.told.serial.empty() && each.told.serial == serial;
    };
    // Of a board with two GPUs neither is meant.
    const auto& all = library.devices();
    if (std::count_if(all.begin(), all.end(), has_it) > 1) return NVML_ERROR_INVALID_ARGUMENT;
    return find(device, has_it);
  });
}

nvmlReturn_t manual_nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* device) {
  return with_library([&](Library&) {
    return uuid == nullptr ? NVML_ERROR_INVALID_ARGUMENT : by_uuid(uuid, device);
  });
}

nvmlReturn_t manual_nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t* uuid, nvmlDevice_t* device) {
  return with_library([&](Library&) {
    if (uuid == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (uuid->version != nvmlUUID_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (uuid->type == NVML_UUID_TYPE_ASCII)
      return by_uuid({uuid->value.str, ::strnlen(uuid->value.str, sizeof uuid->value.str)}, device);
    if (uuid->type != NVML_UUID_TYPE_BINARY) return NVML_ERROR_INVALID_ARGUMENT;
    client::Uuid bytes;
    std::memcpy(bytes.data(), uuid->value.bytes, bytes.size());
    return by_uuid(client::uuid_text(bytes), device);
  });
}

nvmlReturn_t manual_nvmlDeviceGetHandleByPciBusId_v2(const char* pciBusId, nvmlDevice_t* device) {
  return with_library([&](Library&) {
    unsigned int domain = 0, bus = 0, slot = 0;
    if (pciBusId == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    // "0000:65:00.0", or "65:00.0" in the first domain.
    if (std::sscanf(pciBusId, "%x:%x:%x", &domain, &bus, &slot) != 3) {
      domain = 0;
      if (std::sscanf(pciBusId, "%x:%x", &bus, &slot) != 2) return NVML_ERROR_INVALID_ARGUMENT;
    }
    return find(device, [&](const Device& each) {
      return each.domain == domain && each.told.bus == bus && each.told.device == slot;
    });
  });
}

nvmlReturn_t manual_nvmlDeviceGetHandleByPciBusId(const char* pciBusId, nvmlDevice_t* device) {
  return manual_nvmlDeviceGetHandleByPciBusId_v2(pciBusId, device);
}

nvmlReturn_t manual_nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int* index) {
  return with_device(device, [&](Library&, const Device& each) { return give(index, each.index); });
}

nvmlReturn_t manual_nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid, unsigned int length) {
  return with_device(device, [&](Library&, const Device& each) {
    if (uuid == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (length <= each.uuid.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
    std::memcpy(uuid, each.uuid.c_str(), each.uuid.size() + 1);
    return NVML_SUCCESS;
  });
}

nvmlReturn_t manual_nvmlGetExcludedDeviceCount(unsigned int* deviceCount) {
  return with_library([&](Library&) { return give(deviceCount, 0U); });
}

nvmlReturn_t manual_nvmlGetExcludedDeviceInfoByIndex(unsigned int, nvmlExcludedDeviceInfo_t*) {
  return with_library([&](Library&) { return NVML_ERROR_INVALID_ARGUMENT; });
}

nvmlReturn_t manual_nvmlGetBlacklistDeviceCount(unsigned int* deviceCount) {
  return manual_nvmlGetExcludedDeviceCount(deviceCount);
}

nvmlReturn_t manual_nvmlGetBlacklistDeviceInfoByIndex(unsigned int index,
                                                      nvmlExcludedDeviceInfo_t* info) {
  return manual_nvmlGetExcludedDeviceInfoByIndex(index, info);
}

nvmlReturn_t manual_nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t* gpmSupport) {
  return with_device(device, [&](Library&, const Device&) {
    if (gpmSupport == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (gpmSupport->version != NVML_GPM_SUPPORT_VERSION)
      return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    gpmSupport->isSupportedDevice = 0;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t manual_nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int* isMigDevice) {
  return with_device(device, [&](Library&, const Device&) { return give(isMigDevice, 0U); });
}

nvmlReturn_t manual_nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int,
                                                        nvmlDevice_t* migDevice) {
  return with_device(device, [&](Library&, const Device&) {
    return migDevice == nullptr ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_NOT_FOUND;
  });
}

nvmlReturn_t manual_nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t migDevice,
                                                                 nvmlDevice_t*) {
  return with_device(migDevice,
                     [&](Library&, const Device&) { return NVML_ERROR_INVALID_ARGUMENT; });
}

}  // namespace fargpu::nvml

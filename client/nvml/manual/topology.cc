#include <unistd.h>

#include <cstring>
#include <vector>

#include "client/nvml/manual/common.h"

namespace fargpu::nvml {
namespace {

// Between GPUs of two servers is a network.
template <typename Ask, typename T>
nvmlReturn_t between(nvmlDevice_t one, nvmlDevice_t two, T* to, T apart, Ask&& ask) {
  return with_device(one, [&](Library& library, const Device& first) {
    const Device* const second = library.find(two);
    if (second == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    return first.connection == second->connection ? ask() : give(to, apart);
  });
}

// The first `members` as a set of bits in words: in every scope each GPU is as near to all of them.
nvmlReturn_t fill_set(nvmlDevice_t device, unsigned int words, unsigned long* set, long members,
                      nvmlAffinityScope_t scope) {
  return with_device(device, [&](Library&, const Device&) {
    if (set == nullptr || words == 0 || scope > NVML_AFFINITY_SCOPE_SOCKET)
      return NVML_ERROR_INVALID_ARGUMENT;
    constexpr unsigned int kBits = 8 * sizeof(unsigned long);
    std::memset(set, 0, words * sizeof(unsigned long));
    for (unsigned int i = 0; i < static_cast<unsigned int>(members) && i / kBits < words; ++i)
      set[i / kBits] |= 1UL << i % kBits;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t processors(nvmlDevice_t device, unsigned int words, unsigned long* set,
                        nvmlAffinityScope_t scope = NVML_AFFINITY_SCOPE_NODE) {
  return fill_set(device, words, set, ::sysconf(_SC_NPROCESSORS_CONF), scope);
}

// Lists of devices have a protocol of their own: asked with no room, they say how many there are,
// and succeed; else they give as many as there is room for.
bool asks_rightly(const unsigned int* count, const nvmlDevice_t* list) {
  return count != nullptr && (list != nullptr || *count == 0);
}

nvmlReturn_t give_devices(unsigned int* count, nvmlDevice_t* list,
                          const std::vector<nvmlDevice_t>& devices) {
  const auto all = static_cast<unsigned int>(devices.size());
  const unsigned int given = std::min(*count, all);
  std::copy_n(devices.begin(), given, list);
  *count = *count == 0 ? all : given;
  return NVML_SUCCESS;
}

bool is_level(nvmlGpuTopologyLevel_t level) {
  switch (level) {
    case NVML_TOPOLOGY_INTERNAL:
    case NVML_TOPOLOGY_SINGLE:
    case NVML_TOPOLOGY_MULTIPLE:
    case NVML_TOPOLOGY_HOSTBRIDGE:
    case NVML_TOPOLOGY_NODE:
    case NVML_TOPOLOGY_SYSTEM:
      return true;
  }
  return false;
}

nvmlReturn_t nothing_to_do(nvmlDevice_t device) {
  return with_device(device, [](Library&, const Device&) { return NVML_SUCCESS; });
}

}  // namespace

nvmlReturn_t manual_nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device1, nvmlDevice_t device2,
                                                        nvmlGpuTopologyLevel_t* pathInfo) {
  return between(device1, device2, pathInfo, NVML_TOPOLOGY_SYSTEM, [&] {
    return call_nvmlDeviceGetTopologyCommonAncestor(device1, device2, pathInfo);
  });
}

nvmlReturn_t manual_nvmlDeviceGetP2PStatus(nvmlDevice_t device1, nvmlDevice_t device2,
                                           nvmlGpuP2PCapsIndex_t p2pIndex,
                                           nvmlGpuP2PStatus_t* p2pStatus) {
  return between(device1, device2, p2pStatus, NVML_P2P_STATUS_NOT_SUPPORTED, [&] {
    return call_nvmlDeviceGetP2PStatus(device1, device2, p2pIndex, p2pStatus);
  });
}

nvmlReturn_t manual_nvmlDeviceOnSameBoard(nvmlDevice_t device1, nvmlDevice_t device2,
                                          int* onSameBoard) {
  return between(device1, device2, onSameBoard, 0,
                 [&] { return call_nvmlDeviceOnSameBoard(device1, device2, onSameBoard); });
}

nvmlReturn_t manual_nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device,
                                                     nvmlGpuTopologyLevel_t level,
                                                     unsigned int* count,
                                                     nvmlDevice_t* deviceArray) {
  return with_device(device, [&](Library& library, const Device& self) {
    if (!asks_rightly(count, deviceArray) || !is_level(level)) return NVML_ERROR_INVALID_ARGUMENT;
    // The answer holds places among the devices of the server.
    std::vector<nvmlDevice_t> places(self.connection->devices().size());
    auto found = static_cast<unsigned int>(places.size());
    if (const nvmlReturn_t result =
            call_nvmlDeviceGetTopologyNearestGpus(device, level, &found, places.data());
        result != NVML_SUCCESS) {
      return result;
    }
    places.resize(std::min<size_t>(found, places.size()));
    std::vector<nvmlDevice_t> nearest;
    for (const Device& other : library.devices()) {
      const auto place = reinterpret_cast<nvmlDevice_t>(other.place);
      const bool near = other.connection == self.connection
                            ? std::find(places.begin(), places.end(), place) != places.end()
                            : level == NVML_TOPOLOGY_SYSTEM;
      if (near && &other != &self) nearest.push_back(Library::handle(other));
    }
    return give_devices(count, deviceArray, nearest);
  });
}

nvmlReturn_t manual_nvmlSystemGetTopologyGpuSet(unsigned int cpuNumber, unsigned int* count,
                                                nvmlDevice_t* deviceArray) {
  return with_library([&](Library& library) {
    if (!asks_rightly(count, deviceArray) ||
        cpuNumber >= static_cast<unsigned int>(::sysconf(_SC_NPROCESSORS_CONF))) {
      return NVML_ERROR_INVALID_ARGUMENT;
    }
    std::vector<nvmlDevice_t> all;
    for (const Device& device : library.devices()) all.push_back(Library::handle(device));
    return give_devices(count, deviceArray, all);
  });
}

nvmlReturn_t manual_nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int cpuSetSize,
                                             unsigned long* cpuSet) {
  return processors(device, cpuSetSize, cpuSet);
}

nvmlReturn_t manual_nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device,
                                                        unsigned int cpuSetSize,
                                                        unsigned long* cpuSet,
                                                        nvmlAffinityScope_t scope) {
  return processors(device, cpuSetSize, cpuSet, scope);
}

nvmlReturn_t manual_nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int nodeSetSize,
                                                unsigned long* nodeSet, nvmlAffinityScope_t scope) {
  return fill_set(device, nodeSetSize, nodeSet, 1, scope);
}

nvmlReturn_t manual_nvmlDeviceSetCpuAffinity(nvmlDevice_t device) { return nothing_to_do(device); }

nvmlReturn_t manual_nvmlDeviceClearCpuAffinity(nvmlDevice_t device) {
  return nothing_to_do(device);
}

}  // namespace fargpu::nvml

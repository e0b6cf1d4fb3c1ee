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
    std::vector<nvmlDevice_t> nearest;
    for (const Device& other : library.devices()) {
      if (&other == &self) continue;
      nvmlGpuTopologyLevel_t found{};
      const nvmlDevice_t handle = Library::handle(other);
      if (const nvmlReturn_t result =
              manual_nvmlDeviceGetTopologyCommonAncestor(device, handle, &found);
          result != NVML_SUCCESS) {
        return result;
      }
      if (found == level) nearest.push_back(handle);
    }
    return give_list<nvmlDevice_t>(count, deviceArray, nearest);
  });
}

nvmlReturn_t manual_nvmlSystemGetTopologyGpuSet(unsigned int cpuNumber, unsigned int* count,
                                                nvmlDevice_t* deviceArray) {
  return with_library([&](Library& library) {
    if (cpuNumber >= static_cast<unsigned int>(::sysconf(_SC_NPROCESSORS_CONF)))
      return NVML_ERROR_INVALID_ARGUMENT;
    std::vector<nvmlDevice_t> all;
    for (const Device& device : library.devices()) all.push_back(Library::handle(device));
    return give_list<nvmlDevice_t>(count, deviceArray, all);
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

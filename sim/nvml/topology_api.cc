// How GPUs lie to each other: on one host, each behind its own root, without NVLink. They reach
// each other as the simulated driver says.
#include <unistd.h>

#include "sim/nvml/api.h"

using namespace fargpu::sim::nvml;

namespace {

long processors() { return sysconf(_SC_NPROCESSORS_CONF); }

// body(const Gpu&, const Gpu&)
template <typename Body>
nvmlReturn_t with_two(nvmlDevice_t device1, nvmlDevice_t device2, Body&& body) {
  return with_gpu(device1, [&](const Gpu& one) {
    return with_gpu(device2, [&](const Gpu& two) { return body(one, two); });
  });
}

bool is_level(nvmlGpuTopologyLevel_t level) {
  constexpr int kStep = 10;
  return level >= NVML_TOPOLOGY_INTERNAL && level <= NVML_TOPOLOGY_SYSTEM && level % kStep == 0;
}

// The first `members` as a set of bits in words: every GPU is as near to all of them.
nvmlReturn_t fill_set(nvmlDevice_t device, unsigned words, unsigned long* set, long members) {
  return with_gpu(device, [&](const Gpu&) -> nvmlReturn_t {
    if (set == nullptr || words == 0) return NVML_ERROR_INVALID_ARGUMENT;
    constexpr unsigned kBits = 8 * sizeof(unsigned long);
    std::memset(set, 0, words * sizeof(unsigned long));
    for (unsigned i = 0; i < static_cast<unsigned>(members) && i / kBits < words; ++i)
      set[i / kBits] |= 1UL << i % kBits;
    return NVML_SUCCESS;
  });
}

}  // namespace

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device1, nvmlDevice_t device2,
                                                 nvmlGpuTopologyLevel_t* pathInfo) {
  return with_two(device1, device2, [&](const Gpu& one, const Gpu& two) {
    return give(pathInfo, &one == &two ? NVML_TOPOLOGY_INTERNAL : NVML_TOPOLOGY_NODE);
  });
}

nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, nvmlGpuTopologyLevel_t level,
                                              unsigned int* count, nvmlDevice_t* deviceArray) {
  return with_gpu(device, [&](const Gpu& self) {
    // With no room: how many there are. Else as many as there is room for.
    if (count == nullptr || (*count != 0 && deviceArray == nullptr) || !is_level(level))
      return NVML_ERROR_INVALID_ARGUMENT;
    const unsigned room = std::exchange(*count, 0);
    for (const Gpu& gpu : gpus()) {
      if (&gpu == &self || level != NVML_TOPOLOGY_NODE) continue;
      if (*count < room) deviceArray[*count] = handle_of(gpu);
      if (*count < room || room == 0) ++*count;
    }
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device1, nvmlDevice_t device2,
                                    nvmlGpuP2PCapsIndex_t p2pIndex, nvmlGpuP2PStatus_t* p2pStatus) {
  return with_two(device1, device2, [&](const Gpu& one, const Gpu& two) -> nvmlReturn_t {
    if (static_cast<unsigned>(p2pIndex) >= NVML_P2P_CAPS_INDEX_UNKNOWN)
      return NVML_ERROR_INVALID_ARGUMENT;
    // A device reaches its own memory, which NCCL asks, too.
    const bool by_nvlink = p2pIndex == NVML_P2P_CAPS_INDEX_NVLINK && &one != &two;
    return give(p2pStatus, by_nvlink ? NVML_P2P_STATUS_NOT_SUPPORTED : NVML_P2P_STATUS_OK);
  });
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t* gpuFabricInfo) {
  return answer(device, gpuFabricInfo, nvmlGpuFabricInfo_t{});  // its state: not supported
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t* gpuFabricInfo) {
  return with_gpu(device, [&](const Gpu&) {
    if (gpuFabricInfo != nullptr && gpuFabricInfo->version == nvmlGpuFabricInfo_v2) {
      return give_version(reinterpret_cast<nvmlGpuFabricInfo_v2_t*>(gpuFabricInfo),
                          nvmlGpuFabricInfo_v2, [](auto&) {});
    }
    return give_version(gpuFabricInfo, nvmlGpuFabricInfo_v3, [](auto&) {});
  });
}

nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int cpuSetSize,
                                      unsigned long* cpuSet) {
  return fill_set(device, cpuSetSize, cpuSet, processors());
}

nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned int cpuSetSize,
                                                 unsigned long* cpuSet, nvmlAffinityScope_t scope) {
  return scope > NVML_AFFINITY_SCOPE_SOCKET ? NVML_ERROR_INVALID_ARGUMENT
                                            : fill_set(device, cpuSetSize, cpuSet, processors());
}

nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int nodeSetSize,
                                         unsigned long* nodeSet, nvmlAffinityScope_t scope) {
  return scope > NVML_AFFINITY_SCOPE_SOCKET ? NVML_ERROR_INVALID_ARGUMENT
                                            : fill_set(device, nodeSetSize, nodeSet, 1);
}

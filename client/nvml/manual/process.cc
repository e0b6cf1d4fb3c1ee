#include <fmt/core.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "client/nvml/manual/common.h"
#include "client/nvml/query.h"

namespace fargpu::nvml {
namespace {

template <typename T>
nvmlReturn_t none(nvmlDevice_t device, unsigned int* count, T* list) {
  return with_device(device, [&](Library&, const Device&) {
    return give_list<T>(count, list, std::span<const T>());
  });
}

// The list may be null only if the caller asks for the number, with capacity 0.
template <typename T>
nvmlReturn_t no_processes(nvmlDevice_t device, unsigned int* count, T* list) {
  return with_device(device, [&](Library&, const Device&) {
    if (count != nullptr && *count != 0 && list == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    return give_list<T>(count, list, std::span<const T>());
  });
}

// As it was started; by its short name if it has hidden that. Empty: there is no such process.
std::string name_of(unsigned int pid) {
  std::ifstream line(fmt::format("/proc/{}/cmdline", pid), std::ios::binary);
  std::string name;
  std::getline(line, name, '\0');
  if (!name.empty()) return name;
  std::ifstream comm(fmt::format("/proc/{}/comm", pid));
  std::getline(comm, name);
  return name;
}

}  // namespace

nvmlReturn_t manual_nvmlSystemGetProcessName(unsigned int pid, char* name, unsigned int length) {
  return with_library([&](Library&) {
    if (name == nullptr || length == 0) return NVML_ERROR_INVALID_ARGUMENT;
    const std::string found = name_of(pid);
    if (found.empty()) return NVML_ERROR_NOT_FOUND;
    const size_t fits = std::min<size_t>(found.size(), length - 1);
    std::memcpy(name, found.data(), fits);
    name[fits] = '\0';
    return NVML_SUCCESS;
  });
}

nvmlReturn_t manual_nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device,
                                                          unsigned int* infoCount,
                                                          nvmlProcessInfo_v1_t* infos) {
  return no_processes(device, infoCount, infos);
}

nvmlReturn_t manual_nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device,
                                                             unsigned int* infoCount,
                                                             nvmlProcessInfo_v2_t* infos) {
  return no_processes(device, infoCount, infos);
}

nvmlReturn_t manual_nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device,
                                                             unsigned int* infoCount,
                                                             nvmlProcessInfo_t* infos) {
  return no_processes(device, infoCount, infos);
}

nvmlReturn_t manual_nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t device,
                                                            unsigned int* infoCount,
                                                            nvmlProcessInfo_v1_t* infos) {
  return no_processes(device, infoCount, infos);
}

nvmlReturn_t manual_nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device,
                                                               unsigned int* infoCount,
                                                               nvmlProcessInfo_v2_t* infos) {
  return no_processes(device, infoCount, infos);
}

nvmlReturn_t manual_nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device,
                                                               unsigned int* infoCount,
                                                               nvmlProcessInfo_t* infos) {
  return no_processes(device, infoCount, infos);
}

nvmlReturn_t manual_nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                          nvmlProcessDetailList_t* plist) {
  return with_device(device, [&](Library&, const Device&) {
    if (plist == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (plist->version != nvmlProcessDetailList_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    enum Mode : unsigned { kCompute, kGraphics, kMps };
    if (plist->mode > kMps) return NVML_ERROR_INVALID_ARGUMENT;
    // A job has no other processes.
    if (plist->mode != kCompute) {
      plist->numProcArrayEntries = 0;
      return NVML_SUCCESS;
    }
    std::vector<nvmlProcessInfo_t> infos(
        plist->procArray == nullptr
            ? 0
            : limited(plist->numProcArrayEntries, sizeof(nvmlProcessInfo_t)));
    const nvmlReturn_t result = call_nvmlDeviceGetComputeRunningProcesses_v3(
        device, &plist->numProcArrayEntries, infos.empty() ? nullptr : infos.data());
    if (result != NVML_SUCCESS) return result;
    for (unsigned int i = 0; i < plist->numProcArrayEntries && i < infos.size(); ++i) {
      plist->procArray[i] = {infos[i].pid, infos[i].usedGpuMemory, infos[i].gpuInstanceId,
                             infos[i].computeInstanceId, 0};
    }
    return result;
  });
}

nvmlReturn_t manual_nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                                    nvmlProcessUtilizationSample_t*,
                                                    unsigned int* processSamplesCount,
                                                    unsigned long long) {
  return with_device(device, [&](Library&, const Device&) {
    if (processSamplesCount == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *processSamplesCount = 0;
    return NVML_ERROR_NOT_FOUND;
  });
}

nvmlReturn_t manual_nvmlDeviceGetProcessesUtilizationInfo(
    nvmlDevice_t device, nvmlProcessesUtilizationInfo_t* procesesUtilInfo) {
  return with_device(device, [&](Library&, const Device&) {
    if (procesesUtilInfo == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (procesesUtilInfo->version != nvmlProcessesUtilizationInfo_v1)
      return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    procesesUtilInfo->processSamplesCount = 0;
    return NVML_ERROR_NOT_FOUND;
  });
}

nvmlReturn_t manual_nvmlDeviceGetEncoderSessions(nvmlDevice_t device, unsigned int* sessionCount,
                                                 nvmlEncoderSessionInfo_t* sessionInfos) {
  return none(device, sessionCount, sessionInfos);
}

nvmlReturn_t manual_nvmlDeviceGetEncoderStats(nvmlDevice_t device, unsigned int* sessionCount,
                                              unsigned int* averageFps,
                                              unsigned int* averageLatency) {
  return with_device(device, [&](Library&, const Device&) {
    if (sessionCount == nullptr || averageFps == nullptr || averageLatency == nullptr)
      return NVML_ERROR_INVALID_ARGUMENT;
    *sessionCount = *averageFps = *averageLatency = 0;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t manual_nvmlDeviceGetFBCStats(nvmlDevice_t device, nvmlFBCStats_t* fbcStats) {
  return with_device(device,
                     [&](Library&, const Device&) { return give(fbcStats, nvmlFBCStats_t{}); });
}

nvmlReturn_t manual_nvmlDeviceGetFBCSessions(nvmlDevice_t device, unsigned int* sessionCount,
                                             nvmlFBCSessionInfo_t* sessionInfo) {
  return none(device, sessionCount, sessionInfo);
}

}  // namespace fargpu::nvml

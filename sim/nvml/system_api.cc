// Initialisation, and what belongs to no GPU.
#include <cuda.h>
#include <fmt/core.h>

#include <cstring>
#include <fstream>
#include <string>

#include "schema/nvml/error_text.h"
#include "sim/nvml/api.h"
#include "sim/nvml/readings.h"

using namespace fargpu::sim::nvml;

nvmlReturn_t nvmlInit_v2() { return initialize(); }

nvmlReturn_t nvmlInit() { return initialize(); }

nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
  if (flags & ~unsigned{NVML_INIT_FLAG_NO_GPUS | NVML_INIT_FLAG_NO_ATTACH})
    return NVML_ERROR_INVALID_ARGUMENT;
  return initialize();
}

nvmlReturn_t nvmlShutdown() { return shut_down(); }

const char* nvmlErrorString(nvmlReturn_t result) { return fargpu::nvml_error_text(result); }

// There are none.
nvmlReturn_t nvmlInternalGetExportTable(const void** table, const void* id) {
  if (table == nullptr || id == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *table = nullptr;
  return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char* version, unsigned int length) {
  return with_library([&] { return give_text(version, length, kDriverVersion); });
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char* version, unsigned int length) {
  return with_library([&] { return give_text(version, length, kNvmlVersion); });
}

// The only questions that may come before the initialisation.
nvmlReturn_t nvmlSystemGetCudaDriverVersion(int* cudaDriverVersion) {
  return give(cudaDriverVersion, CUDA_VERSION);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int* cudaDriverVersion) {
  return give(cudaDriverVersion, CUDA_VERSION);
}

nvmlReturn_t nvmlSystemGetDriverBranch(nvmlSystemDriverBranchInfo_t* branchInfo,
                                       unsigned int length) {
  return with_library([&] {
    if (length <= std::strlen(kDriverBranch)) return NVML_ERROR_INSUFFICIENT_SIZE;
    return give_version(branchInfo, nvmlSystemDriverBranchInfo_v1, [&](auto& info) {
      // Takes the length at its word.
      std::memset(static_cast<void*>(&info.branch), 0, length);
      give_text(info.branch, sizeof(info.branch), kDriverBranch);
    });
  });
}

// The name that the system has; a process that is gone is not found.
nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char* name, unsigned int length) {
  return with_library([&]() -> nvmlReturn_t {
    if (name == nullptr || length == 0) return NVML_ERROR_INVALID_ARGUMENT;
    std::ifstream file(fmt::format("/proc/{}/cmdline", pid));
    std::string text;
    if (!std::getline(file, text, '\0')) return NVML_ERROR_NOT_FOUND;
    return give_text(name, length, text);
  });
}

nvmlReturn_t nvmlUnitGetCount(unsigned int* unitCount) {
  return with_library([&] { return give(unitCount, 0U); });
}

nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned int* deviceCount) {
  return with_library([&] { return give(deviceCount, 0U); });
}

nvmlReturn_t nvmlGetBlacklistDeviceCount(unsigned int* deviceCount) {
  return nvmlGetExcludedDeviceCount(deviceCount);
}

nvmlReturn_t nvmlGetExcludedDeviceInfoByIndex(unsigned int, nvmlExcludedDeviceInfo_t*) {
  return with_library([] { return NVML_ERROR_INVALID_ARGUMENT; });
}

nvmlReturn_t nvmlGetBlacklistDeviceInfoByIndex(unsigned int index, nvmlExcludedDeviceInfo_t* info) {
  return nvmlGetExcludedDeviceInfoByIndex(index, info);
}

nvmlReturn_t nvmlSystemGetConfComputeCapabilities(nvmlConfComputeSystemCaps_t* capabilities) {
  return with_library([&] { return give(capabilities, {}); });  // none: all numbers are 0
}

nvmlReturn_t nvmlSystemGetConfComputeState(nvmlConfComputeSystemState_t* state) {
  return with_library([&] { return give(state, {}); });
}

nvmlReturn_t nvmlSystemGetConfComputeSettings(nvmlSystemConfComputeSettings_t* settings) {
  return with_library(
      [&] { return give_version(settings, nvmlSystemConfComputeSettings_v1, [](auto&) {}); });
}

// A program that asks the management library for what has lengths, counts, texts and structs, into
// memory of exactly that size. Exit code 0, whatever the answers are: the server may mean no good.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <vector>

#include "generated/server/nvml/table.h"

namespace {

constexpr unsigned kElements = 96;  // no text is longer

// A value, or room for kElements of them, for each argument of a call.
template <typename T>
class Given {
 public:
  Given(nvmlDevice_t device, unsigned round) {
    if constexpr (std::is_same_v<T, nvmlDevice_t>) {
      value_ = device;
    } else if constexpr (std::is_enum_v<T>) {
      value_ = static_cast<T>(round);
    } else {
      value_ = static_cast<T>(kElements);
    }
  }
  T get() { return value_; }

 private:
  T value_;
};

template <typename T>
class Given<T*> {
 public:
  Given(nvmlDevice_t, unsigned round) : room_(kElements) {
    unsigned first = kElements;
    if constexpr (std::is_class_v<T>) first = sizeof(T) | (round + 1) << 24;  // a version
    std::memcpy(static_cast<void*>(room_.data()), &first, sizeof first);
  }
  T* get() { return room_.data(); }

 private:
  std::vector<T> room_;
};
template <>
class Given<nvmlDevice_t> {
 public:
  Given(nvmlDevice_t device, unsigned) : device_(device) {}
  nvmlDevice_t get() { return device_; }

 private:
  nvmlDevice_t device_;
};

unsigned successes = 0;

template <typename... Arguments>
void ask(nvmlDevice_t device, nvmlReturn_t (*function)(Arguments...)) {
  for (unsigned round = 0; function != nullptr && round < 3; ++round) {
    std::tuple<Given<Arguments>...> given{Given<Arguments>(device, round)...};
    const auto call = [&](auto&... each) { return function(each.get()...); };
    if (std::apply(call, given) == NVML_SUCCESS) ++successes;
  }
}

template <typename... Functions>
void ask_all(nvmlDevice_t device, Functions... functions) {
  (ask(device, functions), ...);
}

}  // namespace

int main() {
  void* const library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW);
  fargpu::server::NvmlTable t;
  if (library == nullptr || fargpu::server::load_nvml_table(library, &t) == 0) return 2;
  nvmlDevice_t device = nullptr;
  if (t.nvmlInit_v2() != NVML_SUCCESS) return 0;
  if (t.nvmlDeviceGetHandleByIndex_v2(0, &device) != NVML_SUCCESS) return 0;
  for (int i = 0; i < 5; ++i) {
    ask_all(device, t.nvmlSystemGetDriverVersion, t.nvmlSystemGetNVMLVersion,
            t.nvmlSystemGetDriverBranch, t.nvmlDeviceGetName, t.nvmlDeviceGetSerial,
            t.nvmlDeviceGetUUID, t.nvmlDeviceGetBoardPartNumber, t.nvmlDeviceGetVbiosVersion,
            t.nvmlDeviceGetInforomVersion, t.nvmlDeviceGetInforomImageVersion,
            t.nvmlDeviceGetGspFirmwareVersion, t.nvmlDeviceGetSupportedMemoryClocks,
            t.nvmlDeviceGetSupportedGraphicsClocks, t.nvmlDeviceGetSupportedPerformanceStates,
            t.nvmlDeviceGetFieldValues, t.nvmlDeviceGetSamples, t.nvmlDeviceGetRetiredPages,
            t.nvmlDeviceGetRetiredPages_v2, t.nvmlDeviceGetTopologyNearestGpus);
    ask_all(device, t.nvmlDeviceGetComputeRunningProcesses_v2,
            t.nvmlDeviceGetComputeRunningProcesses_v3, t.nvmlDeviceGetGraphicsRunningProcesses_v3,
            t.nvmlDeviceGetMPSComputeRunningProcesses_v3, t.nvmlDeviceGetMemoryInfo,
            t.nvmlDeviceGetMemoryInfo_v2, t.nvmlDeviceGetBAR1MemoryInfo, t.nvmlDeviceGetPciInfo_v2,
            t.nvmlDeviceGetPciInfo_v3, t.nvmlDeviceGetPciInfoExt, t.nvmlDeviceGetUtilizationRates,
            t.nvmlDeviceGetTemperatureV, t.nvmlDeviceGetThermalSettings,
            t.nvmlDeviceGetBridgeChipInfo, t.nvmlDeviceGetDynamicPstatesInfo,
            t.nvmlDeviceGetClkMonStatus, t.nvmlDeviceGetCapabilities, t.nvmlDeviceGetAddressingMode,
            t.nvmlDeviceGetEncoderUtilization, t.nvmlDeviceGetPowerManagementLimitConstraints,
            t.nvmlDeviceGetPowerUsage, t.nvmlDeviceGetEccMode, t.nvmlDeviceGetTotalEccErrors);
  }
  std::printf("%u successes\n", successes);
  return 0;
}

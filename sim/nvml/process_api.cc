// Processes, of which none is known, and how busy a GPU is: not at all.
#include "sim/nvml/api.h"
#include "sim/nvml/readings.h"
#include "sim/nvml/readings_over_time.h"

using namespace fargpu::sim::nvml;

namespace {

// The list may be null only if the caller asks for the number, with capacity 0.
nvmlReturn_t give_no_processes(nvmlDevice_t device, unsigned* count, const void* list) {
  return with_gpu(device, [&](const Gpu&) {
    if (count == nullptr || (*count != 0 && list == nullptr)) return NVML_ERROR_INVALID_ARGUMENT;
    *count = 0;
    return NVML_SUCCESS;
  });
}

}  // namespace

#define FARGPU_NO_PROCESSES(name, type)                                          \
  nvmlReturn_t name(nvmlDevice_t device, unsigned int* infoCount, type* infos) { \
    return give_no_processes(device, infoCount, infos);                          \
  }
FARGPU_NO_PROCESSES(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t)
FARGPU_NO_PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t)
FARGPU_NO_PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t)
FARGPU_NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t)
FARGPU_NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t)
FARGPU_NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t)
FARGPU_NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t)
FARGPU_NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t)
FARGPU_NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t)

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                   nvmlProcessDetailList_t* plist) {
  return with_gpu(device, [&](const Gpu&) -> nvmlReturn_t {
    if (plist == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (plist->version != nvmlProcessDetailList_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    constexpr unsigned kModes = 3;  // compute, graphics, MPS
    if (plist->mode >= kModes) return NVML_ERROR_INVALID_ARGUMENT;
    plist->numProcArrayEntries = 0;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t*,
                                             unsigned int* processSamplesCount,
                                             unsigned long long) {
  return with_gpu(device, [&](const Gpu&) -> nvmlReturn_t {
    const nvmlReturn_t result = give(processSamplesCount, 0);
    return result == NVML_SUCCESS ? NVML_ERROR_NOT_FOUND : result;
  });
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(
    nvmlDevice_t device, nvmlProcessesUtilizationInfo_t* procesesUtilInfo) {
  return with_gpu(device, [&](const Gpu&) -> nvmlReturn_t {
    if (procesesUtilInfo == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (procesesUtilInfo->version != nvmlProcessesUtilizationInfo_v1)
      return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    procesesUtilInfo->processSamplesCount = 0;
    return NVML_ERROR_NOT_FOUND;
  });
}

nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t device, nvmlEnableState_t* mode) {
  return answer(device, mode, NVML_FEATURE_DISABLED);
}

nvmlReturn_t nvmlDeviceGetAccountingBufferSize(nvmlDevice_t device, unsigned int* bufferSize) {
  return answer(device, bufferSize, kAccountingEntries);
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t* utilization) {
  hang_if_told(fargpu::sim::Settings::Hang::kUtilization);
  return answer(device, utilization, nvmlUtilization_t{});
}

#define FARGPU_IDLE_ENGINE(name)                                                        \
  nvmlReturn_t name(nvmlDevice_t device, unsigned int* utilization,                     \
                    unsigned int* samplingPeriodUs) {                                   \
    return answer(device, utilization, 0, samplingPeriodUs, kSamplePeriodMicroseconds); \
  }
FARGPU_IDLE_ENGINE(nvmlDeviceGetEncoderUtilization)
FARGPU_IDLE_ENGINE(nvmlDeviceGetDecoderUtilization)
FARGPU_IDLE_ENGINE(nvmlDeviceGetJpgUtilization)
FARGPU_IDLE_ENGINE(nvmlDeviceGetOfaUtilization)

nvmlReturn_t nvmlDeviceGetEncoderStats(nvmlDevice_t device, unsigned int* sessionCount,
                                       unsigned int* averageFps, unsigned int* averageLatency) {
  return with_gpu(device, [&](const Gpu&) -> nvmlReturn_t {
    if (sessionCount == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *sessionCount = 0;
    return give(averageFps, 0, averageLatency, 0);
  });
}

nvmlReturn_t nvmlDeviceGetEncoderSessions(nvmlDevice_t device, unsigned int* sessionCount,
                                          nvmlEncoderSessionInfo_t*) {
  return give_empty_list(device, sessionCount);
}

nvmlReturn_t nvmlDeviceGetFBCStats(nvmlDevice_t device, nvmlFBCStats_t* fbcStats) {
  return answer(device, fbcStats, nvmlFBCStats_t{});
}

nvmlReturn_t nvmlDeviceGetFBCSessions(nvmlDevice_t device, unsigned int* sessionCount,
                                      nvmlFBCSessionInfo_t*) {
  return give_empty_list(device, sessionCount);
}

// One sample per period, of which the last four are kept. Without `samples`: how many there may be.
nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, nvmlSamplingType_t type,
                                  unsigned long long lastSeenTimeStamp,
                                  nvmlValueType_t* sampleValType, unsigned int* sampleCount,
                                  nvmlSample_t* samples) {
  return with_gpu(device, [&](const Gpu&) -> nvmlReturn_t {
    constexpr unsigned kKept = 4;
    if (sampleCount == nullptr || sampleValType == nullptr ||
        static_cast<unsigned>(type) >= NVML_SAMPLINGTYPE_COUNT)
      return NVML_ERROR_INVALID_ARGUMENT;
    *sampleValType = NVML_VALUE_TYPE_UNSIGNED_INT;
    if (samples == nullptr) return give(sampleCount, kKept);
    const unsigned room = std::exchange(*sampleCount, 0);
    const unsigned long long now = microseconds_since_1970() / kSamplePeriodMicroseconds;
    for (unsigned long long period = now - kKept + 1; period <= now; ++period) {
      const unsigned long long time = period * kSamplePeriodMicroseconds;
      if (time <= lastSeenTimeStamp) continue;
      if (*sampleCount == room) return NVML_ERROR_INSUFFICIENT_SIZE;
      nvmlSample_t sample{.timeStamp = time, .sampleValue = {.ullVal = 0}};
      if (type == NVML_TOTAL_POWER_SAMPLES) sample.sampleValue.uiVal = kMilliwatts;
      samples[(*sampleCount)++] = sample;
    }
    return *sampleCount > 0 ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
  });
}

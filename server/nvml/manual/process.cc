#include "generated/server/nvml/serve.h"
#include "server/nvml/desk.h"

namespace fargpu::server {
namespace {

// NVML's protocol for lists: how many there are, and INSUFFICIENT_SIZE when there is less room.
template <typename Info>
nvmlReturn_t list(Desk& desk, nvmlDevice_t device, unsigned int* count, Info* infos) {
  // The list may be null only if the caller asks for the number, with capacity 0.
  if (count == nullptr || (infos == nullptr && *count != 0)) return NVML_ERROR_INVALID_ARGUMENT;
  desk.look();
  const auto processes = desk.processes(device);
  const unsigned int room = *count;
  *count = static_cast<unsigned int>(processes.size());
  if (room < processes.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (size_t i = 0; infos != nullptr && i < processes.size(); ++i) {
    infos[i] = Info{};
    infos[i].pid = processes[i].pid;
    infos[i].usedGpuMemory = processes[i].bytes;
    if constexpr (requires { infos[i].gpuInstanceId; }) {
      constexpr unsigned int kNone = ~0U;
      infos[i].gpuInstanceId = kNone;
      infos[i].computeInstanceId = kNone;
    }
  }
  return NVML_SUCCESS;
}

}  // namespace

nvmlReturn_t manual_nvmlDeviceGetComputeRunningProcesses(Desk& desk, nvmlDevice_t device,
                                                         unsigned int* infoCount,
                                                         nvmlProcessInfo_v1_t* infos) {
  return list(desk, device, infoCount, infos);
}

nvmlReturn_t manual_nvmlDeviceGetComputeRunningProcesses_v2(Desk& desk, nvmlDevice_t device,
                                                            unsigned int* infoCount,
                                                            nvmlProcessInfo_v2_t* infos) {
  return list(desk, device, infoCount, infos);
}

nvmlReturn_t manual_nvmlDeviceGetComputeRunningProcesses_v3(Desk& desk, nvmlDevice_t device,
                                                            unsigned int* infoCount,
                                                            nvmlProcessInfo_t* infos) {
  return list(desk, device, infoCount, infos);
}

}  // namespace fargpu::server

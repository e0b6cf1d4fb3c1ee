#include "client/nvml/manual/nvidia_smi.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "client/nvml/manual/common.h"
#include "client/nvml/query.h"

namespace fargpu::nvml {
namespace {

constexpr unsigned char kId[16] = {0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e,
                                   0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4};
constexpr size_t kTableWords = 512;  // more than any release is known to have
// Places in the table.
constexpr size_t kCanBeWatched = 72;
constexpr size_t kComputeProcesses = 213, kGraphicsProcesses = 214, kMpsProcesses = 215;

nvmlReturn_t not_published() { return NVML_ERROR_NOT_SUPPORTED; }

// Whether dmon and pmon can watch the device. The rest of dmon uses published functions.
nvmlReturn_t can_be_watched(nvmlDevice_t, int* answer) {
  if (answer == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *answer = 1;
  return NVML_SUCCESS;
}

// A process as the default page, -q, --query-compute-apps and pmon list it. R535, R550 and R555 have
// this layout.
struct ListedProcess {
  nvmlProcessDetail_v1_t process;
  char name[4096];
};
static_assert(sizeof(ListedProcess) == 4128 && offsetof(ListedProcess, name) == 32);

nvmlReturn_t list_processes(nvmlDevice_t device, unsigned* count, ListedProcess* list) {
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const unsigned room = list == nullptr ? 0 : limited(*count, sizeof(nvmlProcessInfo_t));
  std::vector<nvmlProcessInfo_t> infos(room);
  *count = room;
  const nvmlReturn_t result = call_nvmlDeviceGetComputeRunningProcesses_v3(
      device, count, room == 0 ? nullptr : infos.data());
  if (result != NVML_SUCCESS) return result;
  for (unsigned i = 0; i < std::min(*count, room); ++i) {
    const nvmlProcessInfo_t& info = infos[i];
    ListedProcess& listed = list[i];
    listed.process = {info.pid, info.usedGpuMemory, info.gpuInstanceId, info.computeInstanceId, 0};
    listed.name[0] = '\0';
    manual_nvmlSystemGetProcessName(info.pid, listed.name, sizeof listed.name);
  }
  return result;
}

nvmlReturn_t compute_processes(nvmlDevice_t device, unsigned* count, ListedProcess* list) {
  return guarded([&] { return list_processes(device, count, list); });
}

// pmon waits for an answer.
nvmlReturn_t no_processes(nvmlDevice_t, unsigned* count, ListedProcess*) {
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *count = 0;
  return NVML_SUCCESS;
}

}  // namespace

bool is_nvidia_smi_table(const void* id) { return std::memcmp(id, kId, sizeof kId) == 0; }

const void* nvidia_smi_table() {
  static const auto table = [] {
    std::array<uintptr_t, kTableWords> words;
    words.fill(reinterpret_cast<uintptr_t>(&not_published));
    words[0] = sizeof(words);
    words[kCanBeWatched] = reinterpret_cast<uintptr_t>(&can_be_watched);
    words[kComputeProcesses] = reinterpret_cast<uintptr_t>(&compute_processes);
    for (const size_t kind : {kGraphicsProcesses, kMpsProcesses})
      words[kind] = reinterpret_cast<uintptr_t>(&no_processes);
    return words;
  }();
  return table.data();
}

}  // namespace fargpu::nvml

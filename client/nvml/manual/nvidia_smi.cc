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
constexpr size_t kConnection = 23, kCanBeWatched = 72;
constexpr size_t kComputeProcesses = 213, kGraphicsProcesses = 214, kMpsProcesses = 215;

nvmlReturn_t not_published() { return NVML_ERROR_NOT_SUPPORTED; }

// Whether dmon and pmon can watch the device. The rest of dmon uses published functions.
nvmlReturn_t can_be_watched(nvmlDevice_t, int* answer) {
  if (answer == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *answer = 1;
  return NVML_SUCCESS;
}

// How `topo -m` names what lies between two GPUs; NVLinks follow, by their number.
enum Connected : int { kOneBridge, kBridges, kHostBridge, kNode, kSystem };

Connected connected(nvmlGpuTopologyLevel_t level) {
  switch (level) {
    case NVML_TOPOLOGY_INTERNAL:
    case NVML_TOPOLOGY_SINGLE:
      return kOneBridge;
    case NVML_TOPOLOGY_MULTIPLE:
      return kBridges;
    case NVML_TOPOLOGY_HOSTBRIDGE:
      return kHostBridge;
    case NVML_TOPOLOGY_NODE:
      return kNode;
    case NVML_TOPOLOGY_SYSTEM:
      break;
  }
  return kSystem;
}

// How many links lead from one GPU to the other, or to switches.
struct Links {
  int to_other = 0, to_switch = 0;
};
Links links_between(nvmlDevice_t one, const nvmlPciInfo_t& other) {
  Links links;
  for (unsigned link = 0; link < NVML_NVLINK_MAX_LINKS; ++link) {
    nvmlEnableState_t state = NVML_FEATURE_DISABLED;
    nvmlIntNvLinkDeviceType_t type = NVML_NVLINK_DEVICE_TYPE_UNKNOWN;
    nvmlPciInfo_t remote{};
    // A GPU without NVLink says so of the first one.
    if (call_nvmlDeviceGetNvLinkState(one, link, &state) != NVML_SUCCESS) break;
    if (state != NVML_FEATURE_ENABLED) continue;
    if (call_nvmlDeviceGetNvLinkRemoteDeviceType(one, link, &type) == NVML_SUCCESS &&
        type == NVML_NVLINK_DEVICE_TYPE_SWITCH) {
      ++links.to_switch;
    } else if (manual_nvmlDeviceGetNvLinkRemotePciInfo_v2(one, link, &remote) == NVML_SUCCESS &&
               remote.domain == other.domain && remote.bus == other.bus &&
               remote.device == other.device) {
      ++links.to_other;
    }
  }
  return links;
}

nvmlReturn_t find_connection(const char* first, const char* second, int* answer) {
  if (first == nullptr || second == nullptr || answer == nullptr)
    return NVML_ERROR_INVALID_ARGUMENT;
  nvmlDevice_t devices[2] = {};
  nvmlPciInfo_t places[2] = {};
  const char* const names[2] = {first, second};
  for (int i = 0; i < 2; ++i) {
    nvmlReturn_t result = manual_nvmlDeviceGetHandleByPciBusId_v2(names[i], &devices[i]);
    if (result == NVML_SUCCESS) result = manual_nvmlDeviceGetPciInfo_v3(devices[i], &places[i]);
    if (result != NVML_SUCCESS) return result;
  }
  nvmlGpuTopologyLevel_t level{};
  if (const nvmlReturn_t result =
          manual_nvmlDeviceGetTopologyCommonAncestor(devices[0], devices[1], &level);
      result != NVML_SUCCESS) {
    return result;
  }
  const Links there = links_between(devices[0], places[1]);
  const bool by_switch = there.to_switch > 0 && links_between(devices[1], places[0]).to_switch > 0;
  const int links = there.to_other + (by_switch ? there.to_switch : 0);
  *answer = links > 0 ? kSystem + links : connected(level);
  return NVML_SUCCESS;
}

nvmlReturn_t connection(const char* first, const char* second, int* answer) {
  return guarded([&] { return find_connection(first, second, answer); });
}

// A process as the default page, -q, --query-compute-apps and pmon list it. R535, R550 and R555
// have this layout.
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
    words[kConnection] = reinterpret_cast<uintptr_t>(&connection);
    words[kCanBeWatched] = reinterpret_cast<uintptr_t>(&can_be_watched);
    words[kComputeProcesses] = reinterpret_cast<uintptr_t>(&compute_processes);
    for (const size_t kind : {kGraphicsProcesses, kMpsProcesses})
      words[kind] = reinterpret_cast<uintptr_t>(&no_processes);
    return words;
  }();
  return table.data();
}

}  // namespace fargpu::nvml

#include <algorithm>
#include <vector>

#include "generated/server/nvml/serve.h"
#include "generated/server/nvml/table.h"
#include "server/nvml/desk.h"

namespace fargpu::server {

// What goes back are places among the job's GPUs.
nvmlReturn_t manual_nvmlDeviceGetTopologyNearestGpus(Desk& desk, nvmlDevice_t device,
                                                     nvmlGpuTopologyLevel_t level,
                                                     unsigned int* count,
                                                     nvmlDevice_t* deviceArray) {
  const NvmlTable& nvml = desk.nvml();
  if (nvml.nvmlDeviceGetTopologyCommonAncestor == nullptr) return NVML_ERROR_FUNCTION_NOT_FOUND;
  if (count == nullptr || deviceArray == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  std::vector<nvmlDevice_t> places;
  for (size_t place = 0; place < desk.devices().size(); ++place) {
    const nvmlDevice_t other = desk.devices()[place];
    if (other == device) continue;
    nvmlGpuTopologyLevel_t found{};
    if (const nvmlReturn_t result = nvml.nvmlDeviceGetTopologyCommonAncestor(device, other, &found);
        result != NVML_SUCCESS) {
      return result;
    }
    if (found == level) places.push_back(reinterpret_cast<nvmlDevice_t>(place));
  }
  const unsigned int room = *count;
  *count = static_cast<unsigned int>(places.size());
  if (room < places.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
  std::copy(places.begin(), places.end(), deviceArray);
  return NVML_SUCCESS;
}

}  // namespace fargpu::server

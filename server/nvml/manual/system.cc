#include <algorithm>

#include "generated/server/nvml/serve.h"
#include "generated/server/nvml/table.h"
#include "server/nvml/desk.h"

namespace fargpu::server {

nvmlReturn_t manual_nvmlSystemGetDriverBranch(Desk& desk, nvmlSystemDriverBranchInfo_t* branchInfo,
                                              unsigned int length) {
  if (desk.nvml().nvmlSystemGetDriverBranch == nullptr) return NVML_ERROR_FUNCTION_NOT_FOUND;
  const auto room = static_cast<unsigned int>(sizeof branchInfo->branch);
  return desk.nvml().nvmlSystemGetDriverBranch(branchInfo, std::min(length, room));
}

}  // namespace fargpu::server

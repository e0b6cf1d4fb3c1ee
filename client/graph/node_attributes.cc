#include "client/graph/node_attributes.h"

namespace fargpu::client {
namespace {

CUresult in_range(long long value, long long first, long long last) {
  return value >= first && value <= last ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult check_window(const CUaccessPolicyWindow& window) {
  const auto is_known = [](CUaccessProperty property) {
    return in_range(property, CU_ACCESS_PROPERTY_NORMAL, CU_ACCESS_PROPERTY_PERSISTING);
  };
  const CUresult result = is_known(window.hitProp);
  return result == CUDA_SUCCESS ? is_known(window.missProp) : result;
}

// All zero is as if it was not given. How large clusters may be is the device's.
CUresult check_cluster(unsigned x, unsigned y, unsigned z,
                       const CUDA_KERNEL_NODE_PARAMS_v3& kernel) {
  if (x == 0 && y == 0 && z == 0) return CUDA_SUCCESS;
  const bool is_whole = x != 0 && y != 0 && z != 0 && kernel.gridDimX % x == 0 &&
                        kernel.gridDimY % y == 0 && kernel.gridDimZ % z == 0;
  return is_whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CLUSTER_SIZE;
}

}  // namespace

bool is_attribute_of_nodes(CUlaunchAttributeID id) {
  switch (id) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return true;
    default:
      return is_without_effect(id);
  }
}

bool is_without_effect(CUlaunchAttributeID id) {
  return id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE ||
         id == CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING;
}

CUresult check_attribute(CUlaunchAttributeID id, const CUlaunchAttributeValue& value,
                         const CUDA_KERNEL_NODE_PARAMS_v3& kernel) {
  switch (id) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      return check_window(value.accessPolicyWindow);
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
      return check_cluster(value.clusterDim.x, value.clusterDim.y, value.clusterDim.z, kernel);
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      return in_range(value.memSyncDomain, CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT,
                      CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE);
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return in_range(static_cast<int>(value.sharedMemCarveout), CU_SHAREDMEM_CARVEOUT_DEFAULT,
                      CU_SHAREDMEM_CARVEOUT_MAX_SHARED);
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
      return in_range(value.nvlinkUtilCentricScheduling, 0, 1);
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
      // 1 is for make_updatable().
      return in_range(value.deviceUpdatableKernelNode.deviceUpdatable, 0, 0);
    default:
      return CUDA_SUCCESS;
  }
}

}  // namespace fargpu::client

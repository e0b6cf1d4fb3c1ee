#include "sim/work/launch_attributes.h"

#include <cstdint>

#include "sim/context/event.h"
#include "sim/driver/driver.h"

namespace fargpu::sim {
namespace {

// The largest cluster that every GPU with clusters has.
constexpr uint64_t kMostBlocks = 8;

template <typename Dimensions>
CUresult check_cluster(const CUlaunchConfig& config, const Dimensions& size,
                       std::array<unsigned, 3>* cluster) {
  if (size.x == 0 && size.y == 0 && size.z == 0) return CUDA_SUCCESS;  // as if not given
  const bool whole = size.x != 0 && size.y != 0 && size.z != 0 && config.gridDimX % size.x == 0 &&
                     config.gridDimY % size.y == 0 && config.gridDimZ % size.z == 0;
  if (!whole || uint64_t{size.x} * size.y > kMostBlocks ||
      uint64_t{size.x} * size.y * size.z > kMostBlocks) {
    return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  }
  *cluster = {size.x, size.y, size.z};
  return CUDA_SUCCESS;
}

CUresult in_range(int value, int first, int last) {
  return value >= first && value <= last ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult check_window(const CUaccessPolicyWindow& window) {
  const auto property = [](CUaccessProperty value) {
    return value >= CU_ACCESS_PROPERTY_NORMAL && value <= CU_ACCESS_PROPERTY_PERSISTING;
  };
  return property(window.hitProp) && property(window.missProp) ? CUDA_SUCCESS
                                                               : CUDA_ERROR_INVALID_VALUE;
}

CUresult check_event(CUevent handle, int flags, LaunchAttributes* out) {
  if (flags < 0 || flags > CU_EVENT_RECORD_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  out->external = out->external || flags == CU_EVENT_RECORD_EXTERNAL;
  const auto event = Driver::get().registry().find<Event>(handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  return (event->flags & CU_EVENT_DISABLE_TIMING) != 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult read_attribute(const CUlaunchConfig& config, const CUlaunchAttribute& attribute,
                        LaunchAttributes* out) {
  const CUlaunchAttributeValue& value = attribute.value;
  CUgraphEdgeData edge{};
  switch (static_cast<int>(attribute.id)) {
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      return check_window(value.accessPolicyWindow);
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      out->cooperative = value.cooperative != 0;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
      return check_cluster(config, value.clusterDim, &out->cluster);
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION: {
      std::array<unsigned, 3> preferred{};
      return check_cluster(config, value.preferredClusterDim, &preferred);
    }
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      return in_range(value.clusterSchedulingPolicyPreference, CU_CLUSTER_SCHEDULING_POLICY_DEFAULT,
                      CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING);
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      return in_range(value.memSyncDomain, CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT,
                      CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE);
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return in_range(static_cast<int>(value.sharedMemCarveout), CU_SHAREDMEM_CARVEOUT_DEFAULT,
                      CU_SHAREDMEM_CARVEOUT_MAX_SHARED);
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
      return in_range(static_cast<int>(value.nvlinkUtilCentricScheduling), 0, 1);
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
      edge.from_port = CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER;
      out->events.emplace_back(value.launchCompletionEvent.event, edge);
      return check_event(value.launchCompletionEvent.event, value.launchCompletionEvent.flags, out);
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
      edge.from_port = value.programmaticEvent.triggerAtBlockStart != 0
                           ? CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER
                           : CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
      edge.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
      out->events.emplace_back(value.programmaticEvent.event, edge);
      return check_event(value.programmaticEvent.event, value.programmaticEvent.flags, out);
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
      out->of_node = true;
      return out->may_be_of_node ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

CUresult read_attributes(const CUlaunchConfig& config, LaunchAttributes* attributes) {
  if (config.numAttrs != 0 && config.attrs == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const CUresult result = read_attribute(config, config.attrs[i], attributes);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace fargpu::sim

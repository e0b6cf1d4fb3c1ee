// Attributes of kernel nodes: their names and valid values. Pure functions.
#pragma once

#include <cuda.h>

namespace fargpu::client {

// The others are about streams and launches, or kernels change the node through them.
bool is_attribute_of_nodes(CUlaunchAttributeID id);
// Attributes that a node has but that do nothing here: they read as zeros.
bool is_without_effect(CUlaunchAttributeID id);

// Of a kernel with this grid. CUDA_ERROR_INVALID_CLUSTER_SIZE: the grid is no whole number of
// clusters. CUDA_ERROR_NOT_SUPPORTED: kernels would change the node.
CUresult check_attribute(CUlaunchAttributeID id, const CUlaunchAttributeValue& value,
                         const CUDA_KERNEL_NODE_PARAMS_v3& kernel);

}  // namespace fargpu::client

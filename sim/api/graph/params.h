// Parameters of nodes: older forms of the structs as the one that cuGraphAddNode takes.
#pragma once

#include <cuda.h>

#include <cstring>

namespace fargpu::sim {

inline CUDA_KERNEL_NODE_PARAMS_v3 to_v3(const CUDA_KERNEL_NODE_PARAMS_v2& params) {
  static_assert(sizeof(CUDA_KERNEL_NODE_PARAMS_v3) == sizeof(CUDA_KERNEL_NODE_PARAMS_v2));
  CUDA_KERNEL_NODE_PARAMS_v3 out;
  std::memcpy(&out, &params, sizeof(out));
  return out;
}

inline CUDA_KERNEL_NODE_PARAMS_v3 to_v3(const CUDA_KERNEL_NODE_PARAMS_v1& params) {
  CUDA_KERNEL_NODE_PARAMS_v3 out{};
  std::memcpy(&out, &params, sizeof(params));  // it ends with a context and a kernel
  return out;
}

inline CUDA_MEMSET_NODE_PARAMS_v2 to_v2(const CUDA_MEMSET_NODE_PARAMS_v1& params, CUcontext ctx) {
  CUDA_MEMSET_NODE_PARAMS_v2 out{};
  std::memcpy(&out, &params, sizeof(params));
  out.ctx = ctx;
  return out;
}

inline CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 to_v2(const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1& params) {
  return {params.ctx, params.count, params.paramArray, params.flags};
}

inline CUDA_MEM_ALLOC_NODE_PARAMS_v2 to_v2(const CUDA_MEM_ALLOC_NODE_PARAMS_v1& params) {
  static_assert(sizeof(CUDA_MEM_ALLOC_NODE_PARAMS_v2) == sizeof(CUDA_MEM_ALLOC_NODE_PARAMS_v1));
  CUDA_MEM_ALLOC_NODE_PARAMS_v2 out;
  std::memcpy(&out, &params, sizeof(out));
  return out;
}

}  // namespace fargpu::sim

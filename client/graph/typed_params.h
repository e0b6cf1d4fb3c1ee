// The parameters of the typed functions about nodes, as the general CUgraphNodeParams. Pure
// functions; pointers lead where the application's do.
#pragma once

#include <cuda.h>

namespace fargpu::client {

inline CUgraphNodeParams of_type(CUgraphNodeType type) {
  CUgraphNodeParams params{};
  params.type = type;
  return params;
}

// Nodes whose parameters stay as they were made.
inline bool is_made_once(CUgraphNodeType type) {
  return type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
         type == CU_GRAPH_NODE_TYPE_CONDITIONAL;
}

template <typename Params>
CUgraphNodeParams kernel_params(const Params& given) {
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_KERNEL);
  CUDA_KERNEL_NODE_PARAMS_v3& kernel = params.kernel;
  kernel.func = given.func;
  kernel.gridDimX = given.gridDimX;
  kernel.gridDimY = given.gridDimY;
  kernel.gridDimZ = given.gridDimZ;
  kernel.blockDimX = given.blockDimX;
  kernel.blockDimY = given.blockDimY;
  kernel.blockDimZ = given.blockDimZ;
  kernel.sharedMemBytes = given.sharedMemBytes;
  kernel.kernelParams = given.kernelParams;
  kernel.extra = given.extra;
  if constexpr (requires { given.kern; }) {
    kernel.kern = given.kern;
    kernel.ctx = given.ctx;
  }
  return params;
}

inline CUgraphNodeParams copy_params(const CUDA_MEMCPY3D& copy, CUcontext context) {
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_MEMCPY);
  params.memcpy.copyCtx = context;
  params.memcpy.copyParams = copy;
  return params;
}

inline CUgraphNodeParams fill_params(const CUDA_MEMSET_NODE_PARAMS_v1& fill, CUcontext context) {
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_MEMSET);
  params.memset = {fill.dst,   fill.pitch,  fill.value, fill.elementSize,
                   fill.width, fill.height, context};
  return params;
}

inline CUgraphNodeParams host_params(const CUDA_HOST_NODE_PARAMS_v1& host) {
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_HOST);
  params.host = {host.fn, host.userData};
  return params;
}

inline CUgraphNodeParams child_params(CUgraph child) {
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_GRAPH);
  params.graph.graph = child;
  return params;
}

inline CUgraphNodeParams empty_params() { return of_type(CU_GRAPH_NODE_TYPE_EMPTY); }

inline CUgraphNodeParams record_params(CUevent event) {
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_EVENT_RECORD);
  params.eventRecord.event = event;
  return params;
}

inline CUgraphNodeParams wait_params(CUevent event) {
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_WAIT_EVENT);
  params.eventWait.event = event;
  return params;
}

inline CUgraphNodeParams free_params(CUdeviceptr address) {
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_MEM_FREE);
  params.free.dptr = address;
  return params;
}

inline CUgraphNodeParams operation_params(const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1& given) {
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
  params.memOp = {given.ctx, given.count, given.paramArray, given.flags};
  return params;
}

// Of parameters that are needed for one call only.
inline CUgraphNodeParams* address_of(CUgraphNodeParams&& params) { return &params; }

}  // namespace fargpu::client

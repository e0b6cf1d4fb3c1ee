// Handles of conditional nodes.
#include "sim/graph/api.h"
#include "sim/work/conditional_value.h"

using namespace fargpu::sim;

CUresult CUDAAPI cuGraphConditionalHandleCreate(CUgraphConditionalHandle* pHandle_out,
                                                CUgraph hGraph, CUcontext ctx,
                                                unsigned int defaultLaunchValue,
                                                unsigned int flags) {
  return with_graph(hGraph, [&](Graph& graph) -> CUresult {
    if (pHandle_out == nullptr || (flags & ~unsigned{CU_GRAPH_COND_ASSIGN_DEFAULT}) != 0)
      return CUDA_ERROR_INVALID_VALUE;
    if (ctx == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    std::shared_ptr<Context> context;
    if (CUresult result = node_context(ctx, &context); result != CUDA_SUCCESS) return result;
    auto value = ConditionalValue::make(std::move(context), defaultLaunchValue,
                                        (flags & CU_GRAPH_COND_ASSIGN_DEFAULT) != 0);
    if (!value) return CUDA_ERROR_OUT_OF_MEMORY;
    *pHandle_out = value->handle;
    graph.conditionals.push_back(std::move(value));
    return CUDA_SUCCESS;
  });
}

// Kernel launches: every check that CUDA makes before it returns, then the grid goes into the
// stream.
#include <span>

#include "sim/driver/api.h"
#include "sim/driver/capture.h"
#include "sim/driver/event.h"
#include "sim/driver/kernel_work.h"
#include "sim/driver/launch_attributes.h"

using namespace fargpu::sim;

namespace {

CUDA_KERNEL_NODE_PARAMS_v3 node_params(CUfunction function, const Launch& launch) {
  CUDA_KERNEL_NODE_PARAMS_v3 params{};
  params.func = function;
  params.gridDimX = launch.grid.grid[0];
  params.gridDimY = launch.grid.grid[1];
  params.gridDimZ = launch.grid.grid[2];
  params.blockDimX = launch.grid.block[0];
  params.blockDimY = launch.grid.block[1];
  params.blockDimZ = launch.grid.block[2];
  params.sharedMemBytes = static_cast<unsigned>(launch.grid.dynamic_shared_bytes);
  params.kernelParams = launch.parameters;
  params.extra = launch.extra;
  return params;
}

CUresult launch_kernel(CUfunction handle, CUstream stream_handle, const Launch& launch,
                       CUevent after = nullptr,
                       std::span<const CUlaunchAttribute> attributes = {}) {
  return with_stream(
      stream_handle, [&](Context& context, const std::shared_ptr<Stream>& stream) -> CUresult {
        LaunchTarget target;
        if (CUresult result = find_function(context, handle, &target); result != CUDA_SUCCESS)
          return result;
        const auto captured = capture_node(
            context, stream, CU_GRAPH_NODE_TYPE_KERNEL,
            [&](auto& params) {
              // That of the stream's context, also where a CUkernel was given.
              const uint64_t own = function_handle(target.module, target.function->info->name);
              params.kernel = node_params(to_handle<CUfunction>(own), launch);
            },
            attributes);
        if (captured && *captured != CUDA_SUCCESS)  // a wrong launch ends the capture
          (void)if_captured(context, stream, [](Capture& capture) {
            capture.valid = false;
            return CUDA_SUCCESS;
          });
        if (captured) {
          const bool record = *captured == CUDA_SUCCESS && after != nullptr;
          return record ? cuEventRecord(after, stream_handle) : *captured;
        }
        load_at_first_use(context, *target.function->settings);
        KernelWork work;
        if (CUresult result = prepare_kernel(context, target, launch, &work);
            result != CUDA_SUCCESS)
          return result;
        context.submit_to_device(stream, [owner = context.shared_from_this(),
                                          work = std::move(work)] { run_kernel(*owner, work); });
        return after != nullptr ? cuEventRecord(after, stream_handle) : CUDA_SUCCESS;
      });
}

}  // namespace

CUresult CUDAAPI cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                unsigned int gridDimZ, unsigned int blockDimX,
                                unsigned int blockDimY, unsigned int blockDimZ,
                                unsigned int sharedMemBytes, CUstream hStream, void** kernelParams,
                                void** extra) {
  const GridConfig grid{
      {gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes, false};
  return launch_kernel(f, hStream, Launch{grid, kernelParams, extra});
}

CUresult CUDAAPI cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX,
                                           unsigned int gridDimY, unsigned int gridDimZ,
                                           unsigned int blockDimX, unsigned int blockDimY,
                                           unsigned int blockDimZ, unsigned int sharedMemBytes,
                                           CUstream hStream, void** kernelParams) {
  const GridConfig grid{
      {gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes, true};
  CUlaunchAttribute cooperative{};
  cooperative.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  cooperative.value.cooperative = 1;
  return launch_kernel(f, hStream, Launch{grid, kernelParams, nullptr}, nullptr, {&cooperative, 1});
}

CUresult CUDAAPI cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
                                  void** extra) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  LaunchAttributes attributes;
  if (CUresult result = read_attributes(*config, &attributes); result != CUDA_SUCCESS)
    return result;
  const GridConfig grid{{config->gridDimX, config->gridDimY, config->gridDimZ},
                        {config->blockDimX, config->blockDimY, config->blockDimZ},
                        config->sharedMemBytes,
                        attributes.cooperative};
  const Launch launch{grid, kernelParams, extra};
  return launch_kernel(f, config->hStream, launch, attributes.after,
                       {config->attrs, config->numAttrs});
}

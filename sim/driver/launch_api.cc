// Kernel launches: every check that CUDA makes before it returns, then the grid goes into the
// stream.
#include "sim/driver/api.h"
#include "sim/driver/event.h"
#include "sim/driver/kernel_work.h"
#include "sim/driver/launch_attributes.h"

using namespace fargpu::sim;

namespace {

CUresult launch_kernel(CUfunction handle, CUstream stream_handle, const Launch& launch,
                       CUevent after = nullptr) {
  return with_stream(
      stream_handle, [&](Context& context, const std::shared_ptr<Stream>& stream) -> CUresult {
        LaunchTarget target;
        if (CUresult result = find_function(context, handle, &target); result != CUDA_SUCCESS)
          return result;
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
  return launch_kernel(f, hStream, Launch{grid, kernelParams, nullptr});
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
  return launch_kernel(f, config->hStream, launch, attributes.after);
}

// Kernel launches: every check that CUDA makes before it returns, then the grid goes into the
// stream.
#include <span>
#include <vector>

#include "sim/context/capture.h"
#include "sim/context/event.h"
#include "sim/object/api.h"
#include "sim/work/kernel_work.h"
#include "sim/work/launch_attributes.h"

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

// The events stand for edges from the kernel that was captured last.
void record_captured(const Context& context, const std::shared_ptr<Stream>& stream,
                     const std::vector<std::pair<CUevent, CUgraphEdgeData>>& events) {
  for (const auto& recorded : events) {
    const auto event = Driver::get().registry().find<Event>(recorded.first);
    (void)if_captured(context, stream, [&event, &stream, &recorded](Capture& capture) {
      auto place = capture.place(*stream);
      place->data.front() = recorded.second;
      std::lock_guard lock(event->mutex);
      event->captured = std::move(place);
      return CUDA_SUCCESS;
    });
  }
}

CUresult launch_kernel(CUfunction handle, CUstream stream_handle, const Launch& launch,
                       const LaunchAttributes& read = {},
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
          if (*captured == CUDA_SUCCESS) record_captured(context, stream, read.events);
          return *captured;
        }
        if (read.of_node) return CUDA_ERROR_NOT_SUPPORTED;
        KernelWork work;
        if (CUresult result = prepare_kernel(context, target, launch, &work);
            result != CUDA_SUCCESS)
          return result;
        constexpr size_t kBeside = 1706;
        const size_t bytes = work.parameters.size() + kBeside;
        context.submit_to_device(
            stream,
            [owner = context.shared_from_this(), work = std::move(work)] {
              run_kernel(*owner, work);
            },
            bytes);
        CUresult result = CUDA_SUCCESS;
        for (const auto& [event, edge] : read.events)
          if (result == CUDA_SUCCESS) result = cuEventRecord(event, stream_handle);
        return result;
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
  return launch_kernel(f, hStream, Launch{grid, kernelParams, nullptr}, {}, {&cooperative, 1});
}

CUresult CUDAAPI cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
                                  void** extra) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  LaunchAttributes attributes;
  attributes.may_be_of_node = true;  // the stream may be captured
  if (CUresult result = read_attributes(*config, &attributes); result != CUDA_SUCCESS)
    return result;
  if (attributes.external)
    return Captures::get().captured(config->hStream) ? CUDA_ERROR_NOT_SUPPORTED
                                                     : CUDA_ERROR_ILLEGAL_STATE;
  const GridConfig grid{{config->gridDimX, config->gridDimY, config->gridDimZ},
                        {config->blockDimX, config->blockDimY, config->blockDimZ},
                        config->sharedMemBytes,
                        attributes.cooperative,
                        attributes.cluster};
  const Launch launch{grid, kernelParams, extra};
  return launch_kernel(f, config->hStream, launch, attributes, {config->attrs, config->numAttrs});
}

CUresult CUDAAPI cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS* launchParamsList,
                                                      unsigned int numDevices, unsigned int flags) {
  constexpr unsigned kNoSyncBefore = CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC;
  constexpr unsigned kNoSyncAfter = CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_POST_LAUNCH_SYNC;
  return with_driver([&](Driver&) -> CUresult {
    if (launchParamsList == nullptr || numDevices == 0 ||
        (flags & ~(kNoSyncBefore | kNoSyncAfter)) != 0)
      return CUDA_ERROR_INVALID_VALUE;
    struct DeviceStream {
      std::shared_ptr<Context> context;
      std::shared_ptr<Stream> stream;
    };
    std::vector<DeviceStream> streams(numDevices);
    for (unsigned i = 0; i < numDevices; ++i) {
      const CUDA_LAUNCH_PARAMS& launch = launchParamsList[i];
      if (launch.hStream == nullptr || launch.hStream == CU_STREAM_LEGACY ||
          launch.hStream == CU_STREAM_PER_THREAD || launch.function == nullptr)
        return CUDA_ERROR_INVALID_HANDLE;
      const CUresult found = with_stream(launch.hStream, [&](Context& context, const auto& stream) {
        streams[i] = {context.shared_from_this(), stream};
        Captures& captures = Captures::get();
        return captures.any() ? captures.forbidden(launch.hStream, /*ends=*/true) : CUDA_SUCCESS;
      });
      if (found != CUDA_SUCCESS) return found;
      for (unsigned other = 0; other < i; ++other)
        if (&streams[other].context->device() == &streams[i].context->device())
          return CUDA_ERROR_INVALID_VALUE;
    }
    // Each stream waits for what is in all of them.
    const auto meet = [&streams] {
      std::vector<Fence> all;
      for (const DeviceStream& on : streams) {
        const auto fences = on.context->outstanding(on.stream);
        all.insert(all.end(), fences.begin(), fences.end());
      }
      for (const DeviceStream& on : streams)
        on.context->submit(
            on.stream, [] {}, all);
    };
    if ((flags & kNoSyncBefore) == 0) meet();
    for (unsigned i = 0; i < numDevices; ++i) {
      const CUDA_LAUNCH_PARAMS& launch = launchParamsList[i];
      const GridConfig grid{{launch.gridDimX, launch.gridDimY, launch.gridDimZ},
                            {launch.blockDimX, launch.blockDimY, launch.blockDimZ},
                            launch.sharedMemBytes,
                            true};
      const CUresult result = launch_kernel(launch.function, launch.hStream,
                                            Launch{grid, launch.kernelParams, nullptr});
      if (result != CUDA_SUCCESS) return result;
    }
    if ((flags & kNoSyncAfter) == 0) meet();
    return CUDA_SUCCESS;
  });
}

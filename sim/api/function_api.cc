// Functions: attributes, parameters, names, occupancy.
#include <algorithm>

#include "sim/object/api.h"
#include "sim/object/module.h"
#include "sim/work/launch_attributes.h"
#include "sim/work/occupancy.h"

using namespace fargpu::sim;

namespace {

// body(Context&, const LaunchTarget&). `of`: whose context counts when none is current.
template <typename Body>
CUresult with_function_in(const void* of, CUfunction handle, Body&& body) {
  return with_context_of(of, [&](Context& context) -> CUresult {
    LaunchTarget target;
    if (CUresult result = find_function(context, handle, &target); result != CUDA_SUCCESS)
      return result;
    return body(context, target);
  });
}
template <typename Body>
CUresult with_function(CUfunction handle, Body&& body) {
  return with_function_in(handle, handle, std::forward<Body>(body));
}
// For what is set for a function. A kernel, which is launched as one, is refused (an H200 with
// driver 580).
template <typename Body>
CUresult with_own_function(CUfunction handle, Body&& body) {
  return with_function(handle, [&](Context& context, const LaunchTarget& target) -> CUresult {
    if (Driver::get().registry().find<Kernel>(handle)) return CUDA_ERROR_INVALID_HANDLE;
    return body(context, target);
  });
}
// For questions about occupancy, which need a current context.
template <typename Body>
CUresult with_current_function(CUfunction handle, Body&& body) {
  return with_function_in(nullptr, handle, std::forward<Body>(body));
}

// For questions about clusters.
CUresult check_config(const int* out, const CUlaunchConfig* config, LaunchAttributes* attributes) {
  if (out == nullptr || config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const unsigned size : {config->gridDimX, config->gridDimY, config->gridDimZ,
                              config->blockDimX, config->blockDimY, config->blockDimZ}) {
    if (size == 0) return CUDA_ERROR_INVALID_VALUE;
  }
  return read_attributes(*config, attributes);
}

}  // namespace

CUresult CUDAAPI cuFuncGetAttribute(int* pi, CUfunction_attribute attrib, CUfunction hfunc) {
  return with_function(hfunc, [&](Context& context, const LaunchTarget& target) -> CUresult {
    if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return function_attribute(*target.function->info, *target.function->settings,
                              context.device().compute_capability(), attrib, pi);
  });
}

CUresult CUDAAPI cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
  return with_own_function(hfunc, [&](Context& context, const LaunchTarget& target) {
    return set_function_attribute(*target.function->info, *target.function->settings,
                                  context.device(), attrib, value);
  });
}

CUresult CUDAAPI cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config) {
  return with_own_function(hfunc, [&](Context&, const LaunchTarget&) -> CUresult {
    const bool valid = config >= CU_FUNC_CACHE_PREFER_NONE && config <= CU_FUNC_CACHE_PREFER_EQUAL;
    return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult CUDAAPI cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig config) {
  return with_function(hfunc, [&](Context&, const LaunchTarget&) -> CUresult {
    const bool valid = config >= CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE &&
                       config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE;
    return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult CUDAAPI cuFuncGetModule(CUmodule* hmod, CUfunction hfunc) {
  if (hfunc == nullptr && Driver::initialized()) return CUDA_ERROR_INVALID_VALUE;
  return with_function(hfunc, [&](Context&, const LaunchTarget& target) -> CUresult {
    if (hmod == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *hmod = to_handle<CUmodule>(target.module->handle);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuFuncGetName(const char** name, CUfunction hfunc) {
  if (hfunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_function(hfunc, [&](Context&, const LaunchTarget& target) -> CUresult {
    if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *name = target.function->info->name.c_str();
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t* paramOffset,
                                    size_t* paramSize) {
  if (func == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_function(func, [&](Context&, const LaunchTarget& target) {
    return parameter_info(*target.function->info, paramIndex, paramOffset, paramSize);
  });
}

CUresult CUDAAPI cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
  return with_function(function, [&](Context&, const LaunchTarget&) -> CUresult {
    if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuFuncLoad(CUfunction function) {
  return with_function(function, [](Context&, const LaunchTarget&) { return CUDA_SUCCESS; });
}

CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* numBlocks, CUfunction func, int blockSize, size_t dynamicSMemSize, unsigned int flags) {
  return with_current_function(func, [&](Context& context, const LaunchTarget& target) -> CUresult {
    if (numBlocks == nullptr || blockSize <= 0 ||
        (flags & ~unsigned{CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE}) != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *numBlocks =
        active_blocks(context.device(), *target.function->info, blockSize, dynamicSMemSize);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessor(int* numBlocks, CUfunction func,
                                                             int blockSize,
                                                             size_t dynamicSMemSize) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks, func, blockSize,
                                                              dynamicSMemSize, 0);
}

CUresult CUDAAPI cuOccupancyMaxPotentialBlockSizeWithFlags(
    int* minGridSize, int* blockSize, CUfunction func,
    CUoccupancyB2DSize blockSizeToDynamicSMemSize, size_t dynamicSMemSize, int blockSizeLimit,
    unsigned int flags) {
  return with_current_function(func, [&](Context& context, const LaunchTarget& target) -> CUresult {
    if (minGridSize == nullptr || blockSize == nullptr || blockSizeLimit < 0 ||
        (flags & ~unsigned{CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE}) != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const KernelInfo& info = *target.function->info;
    int limit = std::min(info.max_threads_per_block,
                         context.device().attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
    if (blockSizeLimit > 0) limit = std::min(limit, blockSizeLimit);
    int best_threads = 0, best_size = 0, best_blocks = 0;
    // From the largest size down in whole warps: of equally good ones the largest is the answer.
    for (int size = limit; size > 0; size = size % 32 != 0 ? size / 32 * 32 : size - 32) {
      const size_t shared = blockSizeToDynamicSMemSize != nullptr ? blockSizeToDynamicSMemSize(size)
                                                                  : dynamicSMemSize;
      const int blocks = active_blocks(context.device(), info, size, shared);
      if (blocks * size <= best_threads) continue;
      best_threads = blocks * size;
      best_size = size;
      best_blocks = blocks;
    }
    *blockSize = best_size;
    *minGridSize =
        best_blocks * context.device().attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuOccupancyMaxPotentialBlockSize(int* minGridSize, int* blockSize, CUfunction func,
                                                  CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                  size_t dynamicSMemSize, int blockSizeLimit) {
  return cuOccupancyMaxPotentialBlockSizeWithFlags(
      minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize, blockSizeLimit, 0);
}

CUresult CUDAAPI cuOccupancyAvailableDynamicSMemPerBlock(size_t* dynamicSmemSize, CUfunction func,
                                                         int numBlocks, int blockSize) {
  return with_current_function(func, [&](Context& context, const LaunchTarget& target) -> CUresult {
    if (dynamicSmemSize == nullptr || numBlocks <= 0 || blockSize <= 0)
      return CUDA_ERROR_INVALID_VALUE;
    *dynamicSmemSize = available_shared(context.device(), *target.function->info, numBlocks);
    return CUDA_SUCCESS;
  });
}

// A cluster's blocks run like any others, so its size is the only limit.
CUresult CUDAAPI cuOccupancyMaxPotentialClusterSize(int* clusterSize, CUfunction func,
                                                    const CUlaunchConfig* config) {
  constexpr int kPortable = 8;
  return with_current_function(func, [&](Context&, const LaunchTarget&) -> CUresult {
    LaunchAttributes attributes;
    if (CUresult result = check_config(clusterSize, config, &attributes); result != CUDA_SUCCESS)
      return result;
    *clusterSize = kPortable;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuOccupancyMaxActiveClusters(int* numClusters, CUfunction func,
                                              const CUlaunchConfig* config) {
  return with_current_function(func, [&](Context& context, const LaunchTarget& target) -> CUresult {
    LaunchAttributes attributes;
    if (CUresult result = check_config(numClusters, config, &attributes); result != CUDA_SUCCESS)
      return result;
    const Device& device = context.device();
    const uint64_t threads = uint64_t{config->blockDimX} * config->blockDimY * config->blockDimZ;
    const int blocks = threads > static_cast<uint64_t>(target.function->info->max_threads_per_block)
                           ? 0
                           : active_blocks(device, *target.function->info,
                                           static_cast<int>(threads), config->sharedMemBytes);
    const auto& cluster = attributes.cluster;
    *numClusters = blocks * device.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) /
                   std::max(static_cast<int>(cluster[0] * cluster[1] * cluster[2]), 1);
    return CUDA_SUCCESS;
  });
}

// Occupancy: the driver is asked once per function, block size and shared memory, and the answer is
// kept until an attribute is set.
#include <algorithm>

#include "client/image/launch.h"
#include "client/image/load.h"
#include "client/image/twins.h"
#include "client/manual/common.h"

namespace fargpu::client {
namespace {

// A kernel that is of another session than the current context has no device to speak of.
CUresult find(const CallTarget& target, CUfunction handle, Function** function) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return find_function(target.session, handle, function);
}

}  // namespace

CUresult manual_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* numBlocks,
                                                                     CUfunction func, int blockSize,
                                                                     size_t dynamicSMemSize,
                                                                     unsigned int flags) {
  if (numBlocks == nullptr) return CUDA_ERROR_INVALID_VALUE;
  func = of_current_session(func);
  const CallTarget target = CallTarget::of(func);
  Function* function = nullptr;
  if (const CUresult result = find(target, func, &function); result != CUDA_SUCCESS) return result;
  const auto key =
      std::tuple(current_context()->unique_id.load(), blockSize, dynamicSMemSize, flags);
  {
    std::lock_guard lock(function->mutex);
    if (auto known = function->occupancy.find(key); known != function->occupancy.end()) {
      *numBlocks = known->second;
      return CUDA_SUCCESS;
    }
  }
  const CUresult result = call_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
      target.session, target.context, numBlocks, func, blockSize, dynamicSMemSize, flags);
  if (result != CUDA_SUCCESS) return result;
  constexpr size_t kRemembered = 4096;
  std::lock_guard lock(function->mutex);
  if (function->occupancy.size() >= kRemembered) function->occupancy.clear();
  function->occupancy.emplace(key, *numBlocks);
  return CUDA_SUCCESS;
}

CUresult manual_cuOccupancyMaxPotentialBlockSizeWithFlags(
    int* minGridSize, int* blockSize, CUfunction func,
    CUoccupancyB2DSize blockSizeToDynamicSMemSize, size_t dynamicSMemSize, int blockSizeLimit,
    unsigned int flags) {
  if (blockSizeLimit < 0) return CUDA_ERROR_INVALID_VALUE;
  if (minGridSize == nullptr || blockSize == nullptr) return CUDA_ERROR_INVALID_VALUE;
  func = of_current_session(func);
  const CallTarget target = CallTarget::of(func);
  Function* function = nullptr;
  if (const CUresult result = find(target, func, &function); result != CUDA_SUCCESS) return result;
  const int ordinal = current_context()->device;
  const Device& device = *target.session.device(ordinal);
  FunctionAttributes* attributes = nullptr;
  if (const CUresult result =
          attributes_in(target.session, *function, *current_context(), &attributes);
      result != CUDA_SUCCESS) {
    return result;
  }
  int limit = std::min((*attributes)[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK].load(),
                       device.attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
  if (blockSizeLimit > 0) limit = std::min(limit, blockSizeLimit);
  const int warp = std::max(1, device.attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE));
  const int most = device.attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);

  // From the largest block downwards in whole warps; the first with the most resident threads wins,
  // so larger blocks are preferred.
  int best_threads = 0;
  *minGridSize = 0;
  *blockSize = 0;
  for (int rounded = (limit + warp - 1) / warp * warp; rounded > 0; rounded -= warp) {
    const int size = std::min(rounded, limit);
    const size_t dynamic =
        blockSizeToDynamicSMemSize != nullptr ? blockSizeToDynamicSMemSize(size) : dynamicSMemSize;
    int blocks = 0;
    if (const CUresult result = manual_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
            &blocks, func, size, dynamic, flags);
        result != CUDA_SUCCESS) {
      return result;
    }
    if (blocks * size > best_threads) {
      best_threads = blocks * size;
      *blockSize = size;
      *minGridSize = blocks * device.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    }
    if (best_threads == most) break;
  }
  return CUDA_SUCCESS;
}

CUresult manual_cuOccupancyAvailableDynamicSMemPerBlock(size_t* dynamicSmemSize, CUfunction func,
                                                        int numBlocks, int blockSize) {
  func = of_current_session(func);
  const CallTarget target = CallTarget::of(func);
  return call_cuOccupancyAvailableDynamicSMemPerBlock(target.session, target.context,
                                                      dynamicSmemSize, func, numBlocks, blockSize);
}

CUresult manual_cuOccupancyMaxPotentialClusterSize(int* clusterSize, CUfunction func,
                                                   const CUlaunchConfig* config) {
  func = of_current_session(func);
  const CallTarget target = CallTarget::of(func);
  return call_cuOccupancyMaxPotentialClusterSize(target.session, stream_context_id(nullptr),
                                                 clusterSize, func, config);
}

CUresult manual_cuOccupancyMaxActiveClusters(int* numClusters, CUfunction func,
                                             const CUlaunchConfig* config) {
  func = of_current_session(func);
  const CallTarget target = CallTarget::of(func);
  return call_cuOccupancyMaxActiveClusters(target.session, stream_context_id(nullptr), numClusters,
                                           func, config);
}

CUresult check_cooperative(const LaunchShape& shape, CUfunction function) {
  const Device& device = *CallTarget::of_current().session.device(current_context()->device);
  if (device.attribute(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH) == 0)
    return CUDA_ERROR_NOT_SUPPORTED;
  const uint64_t threads = uint64_t{shape.block[0]} * shape.block[1] * shape.block[2];
  if (threads == 0 || threads > INT32_MAX) return CUDA_ERROR_INVALID_VALUE;
  int blocks = 0;
  if (const CUresult result = manual_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
          &blocks, function, static_cast<int>(threads), shape.shared_bytes, CU_OCCUPANCY_DEFAULT);
      result != CUDA_SUCCESS) {
    return result;
  }
  const uint64_t room =
      static_cast<uint64_t>(blocks) *
      static_cast<uint64_t>(device.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  const unsigned __int128 wanted =
      static_cast<unsigned __int128>(shape.grid[0]) * shape.grid[1] * shape.grid[2];
  return wanted > room ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE : CUDA_SUCCESS;
}

}  // namespace fargpu::client

// The launch interface of CUDA 3: block shape, shared memory and parameters are set on the function
// first.
#include <cstring>

#include "client/image/load.h"
#include "client/manual/common.h"
#include "schema/support/cuda_rules.h"

namespace fargpu::client {
namespace {

using schema::kMaxParameterBytes;

CUresult find(CUfunction handle, Function** function) {
  return find_function(CallTarget::of(handle).session, handle, function);
}

CUresult set_bytes(CUfunction handle, int offset, const void* bytes, size_t count) {
  if (offset < 0 || bytes == nullptr || static_cast<size_t>(offset) + count > kMaxParameterBytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Function* function = nullptr;
  if (const CUresult result = find(handle, &function); result != CUDA_SUCCESS) return result;
  std::lock_guard lock(function->mutex);
  auto& parameters = function->legacy.parameters;
  if (parameters.size() < static_cast<size_t>(offset) + count)
    parameters.resize(static_cast<size_t>(offset) + count);
  std::memcpy(parameters.data() + offset, bytes, count);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult manual_cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z) {
  if (x <= 0 || y <= 0 || z <= 0) return CUDA_ERROR_INVALID_VALUE;
  Function* function = nullptr;
  if (const CUresult result = find(hfunc, &function); result != CUDA_SUCCESS) return result;
  std::lock_guard lock(function->mutex);
  function->legacy.block = {static_cast<unsigned>(x), static_cast<unsigned>(y),
                            static_cast<unsigned>(z)};
  return CUDA_SUCCESS;
}

CUresult manual_cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes) {
  Function* function = nullptr;
  if (const CUresult result = find(hfunc, &function); result != CUDA_SUCCESS) return result;
  std::lock_guard lock(function->mutex);
  function->legacy.shared_bytes = bytes;
  return CUDA_SUCCESS;
}

CUresult manual_cuParamSetSize(CUfunction hfunc, unsigned int numbytes) {
  if (numbytes > kMaxParameterBytes) return CUDA_ERROR_INVALID_VALUE;
  Function* function = nullptr;
  if (const CUresult result = find(hfunc, &function); result != CUDA_SUCCESS) return result;
  std::lock_guard lock(function->mutex);
  function->legacy.parameters.resize(numbytes);
  return CUDA_SUCCESS;
}

CUresult manual_cuParamSeti(CUfunction hfunc, int offset, unsigned int value) {
  return set_bytes(hfunc, offset, &value, sizeof value);
}

CUresult manual_cuParamSetf(CUfunction hfunc, int offset, float value) {
  return set_bytes(hfunc, offset, &value, sizeof value);
}

CUresult manual_cuParamSetv(CUfunction hfunc, int offset, void* ptr, unsigned int numbytes) {
  return set_bytes(hfunc, offset, ptr, numbytes);
}

CUresult manual_cuLaunch(CUfunction f) { return manual_cuLaunchGridAsync(f, 1, 1, nullptr); }

CUresult manual_cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream) {
  if (grid_width <= 0 || grid_height <= 0) return CUDA_ERROR_INVALID_VALUE;
  Function* function = nullptr;
  if (const CUresult result = find(f, &function); result != CUDA_SUCCESS) return result;
  LegacyLaunch legacy;
  {
    std::lock_guard lock(function->mutex);
    legacy = function->legacy;
  }
  size_t size = legacy.parameters.size();
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, legacy.parameters.data(),
                   CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
  return manual_cuLaunchKernel(
      f, static_cast<unsigned>(grid_width), static_cast<unsigned>(grid_height), 1, legacy.block[0],
      legacy.block[1], legacy.block[2], legacy.shared_bytes, hStream, nullptr, extra);
}

}  // namespace fargpu::client

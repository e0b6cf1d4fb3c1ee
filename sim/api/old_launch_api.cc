// The launch interface of CUDA 1 to 3: block shape, shared bytes and parameters are kept in the
// function until it is launched.
#include <cstring>

#include "sim/context/capture.h"
#include "sim/object/api.h"
#include "sim/object/module.h"

using namespace fargpu::sim;

namespace {

constexpr size_t kMaxParameterBytes = 4096;

// body(Context&, Function&) with the function's old launch state locked.
template <typename Body>
CUresult with_state(CUfunction handle, Body&& body) {
  return with_context([&](Context& context) -> CUresult {
    LaunchTarget target;
    if (CUresult result = find_function(context, handle, &target); result != CUDA_SUCCESS)
      return result;
    std::lock_guard lock(target.function->old_launch.mutex);
    return body(context, target.function->old_launch);
  });
}

CUresult set_parameter(CUfunction handle, int offset, const void* value, size_t bytes) {
  return with_state(handle, [&](Context&, OldLaunch& state) -> CUresult {
    if (offset < 0 || value == nullptr || bytes > kMaxParameterBytes)
      return CUDA_ERROR_INVALID_VALUE;
    const size_t end = static_cast<size_t>(offset) + bytes;
    if (end > kMaxParameterBytes) return CUDA_ERROR_INVALID_VALUE;
    if (state.parameters.size() < end) state.parameters.resize(end);
    std::memcpy(state.parameters.data() + offset, value, bytes);
    return CUDA_SUCCESS;
  });
}

}  // namespace

CUresult CUDAAPI cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z) {
  return with_state(hfunc, [&](Context&, OldLaunch& state) -> CUresult {
    if (x <= 0 || y <= 0 || z <= 0) return CUDA_ERROR_INVALID_VALUE;
    state.block = {static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z)};
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes) {
  return with_state(hfunc, [&](Context&, OldLaunch& state) -> CUresult {
    state.shared_bytes = bytes;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuParamSetSize(CUfunction hfunc, unsigned int numbytes) {
  return with_state(hfunc, [&](Context&, OldLaunch& state) -> CUresult {
    if (numbytes > kMaxParameterBytes) return CUDA_ERROR_INVALID_VALUE;
    state.parameters.resize(numbytes);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuParamSeti(CUfunction hfunc, int offset, unsigned int value) {
  return set_parameter(hfunc, offset, &value, sizeof value);
}

CUresult CUDAAPI cuParamSetf(CUfunction hfunc, int offset, float value) {
  return set_parameter(hfunc, offset, &value, sizeof value);
}

CUresult CUDAAPI cuParamSetv(CUfunction hfunc, int offset, void* ptr, unsigned int numbytes) {
  return set_parameter(hfunc, offset, ptr, numbytes);
}

CUresult CUDAAPI cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height,
                                   CUstream hStream) {
  std::vector<std::byte> parameters;
  std::array<unsigned, 3> block{};
  unsigned shared_bytes = 0;
  const CUresult result = with_state(f, [&](Context&, OldLaunch& state) -> CUresult {
    if (grid_width <= 0 || grid_height <= 0) return CUDA_ERROR_INVALID_VALUE;
    parameters = state.parameters;
    block = state.block;
    shared_bytes = state.shared_bytes;
    return CUDA_SUCCESS;
  });
  if (result != CUDA_SUCCESS) return result;
  size_t bytes = parameters.size();
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, parameters.data(), CU_LAUNCH_PARAM_BUFFER_SIZE,
                   &bytes, CU_LAUNCH_PARAM_END};
  const BesideCaptures beside;
  return cuLaunchKernel(f, static_cast<unsigned>(grid_width), static_cast<unsigned>(grid_height), 1,
                        block[0], block[1], block[2], shared_bytes, hStream, nullptr, extra);
}

CUresult CUDAAPI cuLaunchGrid(CUfunction f, int grid_width, int grid_height) {
  return cuLaunchGridAsync(f, grid_width, grid_height, nullptr);
}

CUresult CUDAAPI cuLaunch(CUfunction f) { return cuLaunchGrid(f, 1, 1); }

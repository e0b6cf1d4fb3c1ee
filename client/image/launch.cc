#include "client/image/launch.h"

#include <cstring>

namespace fargpu::client {
namespace {

// The registers of a block: a warp takes them in steps of 256.
constexpr uint64_t block_registers(uint64_t threads, uint64_t registers_of_thread) {
  const uint64_t warps = (threads + 31) / 32;
  return warps * ((registers_of_thread * 32 + 255) / 256 * 256);
}

// Most parameters are pointers and numbers.
void copy_parameter(std::byte* to, const void* from, size_t bytes) {
  if (bytes == sizeof(uint64_t)) {
    std::memcpy(to, from, sizeof(uint64_t));
  } else if (bytes == sizeof(uint32_t)) {
    std::memcpy(to, from, sizeof(uint32_t));
  } else {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace

CUresult check_launch(const LaunchShape& shape, const Device& device, const Function& function,
                      const FunctionAttributes& attributes) {
  constexpr CUdevice_attribute kGrid[] = {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X,
                                          CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,
                                          CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z};
  constexpr CUdevice_attribute kBlock[] = {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X,
                                           CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y,
                                           CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z};
  constexpr CUfunction_attribute kCluster[] = {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH,
                                               CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT,
                                               CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH};
  uint64_t threads = 1;
  for (size_t i = 0; i < 3; ++i) {
    if (shape.grid[i] == 0 || shape.grid[i] > static_cast<unsigned>(device.attribute(kGrid[i]))) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (shape.block[i] == 0 ||
        shape.block[i] > static_cast<unsigned>(device.attribute(kBlock[i]))) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    threads *= shape.block[i];
  }
  if (threads >
      static_cast<uint64_t>(device.attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto value = [&](CUfunction_attribute id) {
    return attributes[static_cast<size_t>(id)].load(std::memory_order_relaxed);
  };
  const int most = value(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  if (most > 0 && threads > static_cast<uint64_t>(most)) {
    // Natively the registers give another error than the kernel's own bound (__launch_bounds__).
    const auto registers = static_cast<uint64_t>(value(CU_FUNC_ATTRIBUTE_NUM_REGS));
    const int available = device.attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
    return block_registers(threads, registers) > static_cast<uint64_t>(available)
               ? CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
               : CUDA_ERROR_INVALID_VALUE;
  }
  const int dynamic = value(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  if (dynamic >= 0 && shape.shared_bytes > static_cast<unsigned>(dynamic))
    return CUDA_ERROR_INVALID_VALUE;
  if (function.required_block[0] != 0 && shape.block != function.required_block)
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < 3; ++i) {
    const int required = value(kCluster[i]);
    if (required > 0 && shape.grid[i] % static_cast<unsigned>(required) != 0)
      return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  }
  return CUDA_SUCCESS;
}

CUresult pack_parameters(const Function& function, void** kernel_params, void** extra,
                         std::byte* buffer, std::span<const std::byte>* packed) {
  *packed = {};
  if (kernel_params != nullptr && extra != nullptr) {
    if (extra[0] != CU_LAUNCH_PARAM_END) return CUDA_ERROR_INVALID_VALUE;
    extra = nullptr;
  }
  if (extra != nullptr) {
    const void* bytes = nullptr;
    size_t size = 0;
    for (size_t i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
      if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
        bytes = extra[i + 1];
      } else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
        if (extra[i + 1] == nullptr) return CUDA_ERROR_INVALID_VALUE;
        size = *static_cast<const size_t*>(extra[i + 1]);
      } else {
        return CUDA_ERROR_INVALID_VALUE;
      }
    }
    if ((bytes == nullptr && size != 0) || (size == 0 && function.parameter_bytes != 0))
      return CUDA_ERROR_INVALID_VALUE;
    if (size > function.parameter_bytes) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    // A buffer may end before the parameters do: NCCL gives only the used part of a large struct.
    // Copied, since it may be managed memory, which must not be read while a message is built.
    if (size != 0) {
      std::memcpy(buffer, bytes, size);
      std::memset(buffer + size, 0, function.parameter_bytes - size);
    }
    *packed = {buffer, function.parameter_bytes};
    return CUDA_SUCCESS;
  }
  if (function.parameters.empty()) return CUDA_SUCCESS;
  if (kernel_params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uint32_t end = 0;
  for (const Parameter& parameter : function.parameters) {
    const void* const value = *kernel_params++;
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    // Gaps of alignment must not carry old stack contents over the network.
    if (parameter.offset > end) std::memset(buffer + end, 0, parameter.offset - end);
    copy_parameter(buffer + parameter.offset, value, parameter.size);
    end = parameter.offset + parameter.size;
  }
  *packed = {buffer, function.parameter_bytes};
  return CUDA_SUCCESS;
}

}  // namespace fargpu::client

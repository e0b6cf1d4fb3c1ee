#include "server/memory/copy_shape.h"

#include "generated/server/driver_table.h"

namespace fargpu::server {

bool is_consistent(const Shape& shape, uint64_t bytes) {
  uint64_t packed = 0;
  uint64_t extent = 0;
  if (shape.width == 0 || shape.height == 0 || shape.depth == 0) return bytes == 0;
  if (__builtin_mul_overflow(shape.width, shape.height, &packed) ||
      __builtin_mul_overflow(packed, shape.depth, &packed) || packed != bytes) {
    return false;
  }
  if (shape.height > 1 && shape.pitch < shape.width) return false;
  return !__builtin_mul_overflow(shape.slice_pitch, shape.depth - 1, &extent) &&
         !__builtin_mul_overflow(shape.pitch, shape.height - 1, &extent);
}

CUresult copy_slices(const DriverTable& driver, const Shape& shape, CUdeviceptr device,
                     std::byte* host, bool to_device, CUstream stream) {
  if (shape.width == 0 || shape.height == 0 || shape.depth == 0) return CUDA_SUCCESS;
  for (size_t slice = 0; slice < shape.depth; ++slice) {
    const CUdeviceptr on_device = device + slice * shape.slice_pitch;
    std::byte* const on_host = host + slice * shape.width * shape.height;
    CUresult result = CUDA_SUCCESS;
    if (shape.height == 1 || shape.pitch == shape.width) {
      const size_t bytes = shape.width * shape.height;
      result = to_device ? driver.cuMemcpyHtoDAsync_v2(on_device, on_host, bytes, stream)
                         : driver.cuMemcpyDtoHAsync_v2(on_host, on_device, bytes, stream);
    } else {
      CUDA_MEMCPY2D copy{};
      copy.WidthInBytes = shape.width;
      copy.Height = shape.height;
      if (to_device) {
        copy.srcMemoryType = CU_MEMORYTYPE_HOST;
        copy.srcHost = on_host;
        copy.srcPitch = shape.width;
        copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.dstDevice = on_device;
        copy.dstPitch = shape.pitch;
      } else {
        copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.srcDevice = on_device;
        copy.srcPitch = shape.pitch;
        copy.dstMemoryType = CU_MEMORYTYPE_HOST;
        copy.dstHost = on_host;
        copy.dstPitch = shape.width;
      }
      result = driver.cuMemcpy2DAsync_v2(&copy, stream);
    }
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace fargpu::server

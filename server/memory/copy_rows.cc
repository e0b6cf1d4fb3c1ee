#include "server/memory/copy_rows.h"

#include "generated/server/driver_table.h"

namespace fargpu::server {
namespace {

using copy::Rows;
using copy::Shape;

void* pointer_of(const Rows& host) { return reinterpret_cast<void*>(host.address); }

// CUDA_MEMCPY2D or CUDA_MEMCPY3D.
template <typename Described>
Described describe(const Shape& shape, const Rows& device, const Rows& host, bool to_device) {
  Described copy{};
  copy.WidthInBytes = shape.width;
  copy.Height = shape.height;
  if (to_device) {
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = pointer_of(host);
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = device.address;
  } else {
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = device.address;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = pointer_of(host);
  }
  copy.srcPitch = to_device ? host.pitch : device.pitch;
  copy.dstPitch = to_device ? device.pitch : host.pitch;
  return copy;
}

CUresult copy_slices(const DriverTable& driver, const Shape& shape, const Rows& device,
                     const Rows& host, bool to_device, CUstream stream) {
  auto copy = describe<CUDA_MEMCPY3D>(shape, device, host, to_device);
  copy.Depth = shape.depth;
  copy.srcHeight = rows_per_slice(shape, to_device ? host : device);
  copy.dstHeight = rows_per_slice(shape, to_device ? device : host);
  return driver.cuMemcpy3DAsync_v2(&copy, stream);
}

}  // namespace

CUresult copy_rows(const DriverTable& driver, const Shape& shape, const Rows& device,
                   const Rows& host, bool to_device, CUstream stream) {
  if (is_dense(shape, device) && is_dense(shape, host)) {
    return to_device ? driver.cuMemcpyHtoDAsync_v2(device.address, pointer_of(host), shape.bytes(),
                                                   stream)
                     : driver.cuMemcpyDtoHAsync_v2(pointer_of(host), device.address, shape.bytes(),
                                                   stream);
  }
  if (shape.depth == 1) {
    const auto copy = describe<CUDA_MEMCPY2D>(shape, device, host, to_device);
    return driver.cuMemcpy2DAsync_v2(&copy, stream);
  }
  if (driver.cuMemcpy3DAsync_v2 != nullptr && has_whole_slices(shape, device) &&
      has_whole_slices(shape, host))
    return copy_slices(driver, shape, device, host, to_device, stream);
  const Shape slice{shape.width, shape.height, 1};
  for (uint64_t z = 0; z < shape.depth; ++z) {
    const CUresult result =
        copy_rows(driver, slice, device.at(0, 0, z), host.at(0, 0, z), to_device, stream);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace fargpu::server

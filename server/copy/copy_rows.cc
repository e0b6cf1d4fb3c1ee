#include "server/copy/copy_rows.h"

#include "generated/server/driver_table.h"

namespace fargpu::server {
namespace {

using copy::Location;
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

// One end of a copy with arrays: `Source` or destination members.
struct Side {
  CUmemorytype type;
  void* host = nullptr;
  CUdeviceptr device = 0;
  CUarray array = nullptr;
  size_t x = 0, y = 0, z = 0, pitch = 0, height = 0;
};

Side side_of(const Shape& shape, const Location& end, bool host) {
  if (end.kind == Location::Kind::kArray)
    return {.type = CU_MEMORYTYPE_ARRAY,
            .array = reinterpret_cast<CUarray>(end.position.array),
            .x = end.position.x,
            .y = end.position.y,
            .z = end.position.z};
  return {.type = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
          .host = host ? pointer_of(end.rows) : nullptr,
          .device = host ? 0 : end.rows.address,
          // A single row has no use for the pitch, but drivers look at it.
          .pitch = shape.height == 1 && shape.depth == 1 ? shape.width : end.rows.pitch,
          .height = rows_per_slice(shape, end.rows)};
}

CUresult copy_sides(const DriverTable& driver, const Shape& shape, const Side& to, const Side& from,
                    CUstream stream) {
  if (driver.cuMemcpy3DAsync_v2 == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = from.type;
  copy.srcHost = from.host;
  copy.srcDevice = from.device;
  copy.srcArray = from.array;
  copy.srcXInBytes = from.x;
  copy.srcY = from.y;
  copy.srcZ = from.z;
  copy.srcPitch = from.pitch;
  copy.srcHeight = from.height;
  copy.dstMemoryType = to.type;
  copy.dstHost = to.host;
  copy.dstDevice = to.device;
  copy.dstArray = to.array;
  copy.dstXInBytes = to.x;
  copy.dstY = to.y;
  copy.dstZ = to.z;
  copy.dstPitch = to.pitch;
  copy.dstHeight = to.height;
  copy.WidthInBytes = shape.width;
  copy.Height = shape.height;
  copy.Depth = shape.depth;
  return driver.cuMemcpy3DAsync_v2(&copy, stream);
}

bool is_describable(const Shape& shape, const Location& end) {
  return end.kind == Location::Kind::kArray || has_whole_slices(shape, end.rows);
}

CUresult copy_linear(const DriverTable& driver, const Shape& shape, const Rows& device,
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
        copy_linear(driver, slice, device.at(0, 0, z), host.at(0, 0, z), to_device, stream);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult copy_rows(const DriverTable& driver, const Shape& shape, const Location& device,
                   const Rows& host, bool to_device, CUstream stream) {
  if (device.kind != Location::Kind::kArray) [[likely]]
    return copy_linear(driver, shape, device.rows, host, to_device, stream);
  // Slice by slice where the driver cannot describe those of the host.
  const bool whole = has_whole_slices(shape, host);
  const Shape part{shape.width, shape.height, whole ? shape.depth : 1};
  for (uint64_t z = 0; z < shape.depth; z += part.depth) {
    Location array = device;
    array.position = device.position.at(0, 0, z);
    const Side in_array = side_of(part, array, false);
    const Side on_host = side_of(part, Location::shared(host.at(0, 0, z)), true);
    const CUresult result = to_device ? copy_sides(driver, part, in_array, on_host, stream)
                                      : copy_sides(driver, part, on_host, in_array, stream);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult copy_inside(const DriverTable& driver, const Shape& shape, const Location& to,
                     const Location& from, CUstream stream) {
  if (!is_describable(shape, to) || !is_describable(shape, from)) return CUDA_ERROR_INVALID_VALUE;
  return copy_sides(driver, shape, side_of(shape, to, false), side_of(shape, from, false), stream);
}

}  // namespace fargpu::server

#include "client/graph/copy_change.h"

#include "client/graph/host_copy.h"

namespace fargpu::client {
namespace {

bool is_row(const CUDA_MEMCPY3D& copy) { return copy.Height == 1 && copy.Depth == 1; }

bool is_same(const copy::Part& one, const copy::Part& other, const copy::Shape& shape) {
  copy::Rows rows, other_rows;
  return place(one, shape, &rows) && place(other, shape, &other_rows) && rows == other_rows;
}

bool is_same_source(const CUDA_MEMCPY3D& one, const CUDA_MEMCPY3D& other,
                    const copy::Shape& shape) {
  if (one.srcMemoryType != CU_MEMORYTYPE_ARRAY)
    return is_same(source_part(one), source_part(other), shape);
  return one.srcArray == other.srcArray && one.srcXInBytes == other.srcXInBytes &&
         one.srcY == other.srcY && one.srcZ == other.srcZ;
}

bool is_same_destination(const CUDA_MEMCPY3D& one, const CUDA_MEMCPY3D& other,
                         const copy::Shape& shape) {
  if (one.dstMemoryType != CU_MEMORYTYPE_ARRAY)
    return is_same(destination_part(one), destination_part(other), shape);
  return one.dstArray == other.dstArray && one.dstXInBytes == other.dstXInBytes &&
         one.dstY == other.dstY && one.dstZ == other.dstZ;
}

}  // namespace

bool may_become(const CUDA_MEMCPY3D& was, const CUDA_MEMCPY3D& is) {
  if (was.srcMemoryType != is.srcMemoryType || was.dstMemoryType != is.dstMemoryType) return false;
  if (is_row(was) && is_row(is)) return true;
  const copy::Shape shape{is.WidthInBytes, is.Height, is.Depth};
  return was.WidthInBytes == is.WidthInBytes && was.Height == is.Height && was.Depth == is.Depth &&
         is_same_source(was, is, shape) && is_same_destination(was, is, shape);
}

}  // namespace fargpu::client

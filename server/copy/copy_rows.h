// The driver's copy of a shape between host memory of any kind and device memory or an array; and
// inside the device where an array takes part. Arrays are named by the driver's handles.
#pragma once

#include <cuda.h>

#include "common/copy/copy.h"

namespace fargpu::server {

struct DriverTable;

// Puts a possible shape into the stream: as one driver call, or as one for each slice where the
// driver cannot describe the slices.
CUresult copy_rows(const DriverTable& driver, const copy::Shape& shape,
                   const copy::Location& device, const copy::Rows& host, bool to_device,
                   CUstream stream);
// CUDA_ERROR_INVALID_VALUE: slices of linear memory that the driver cannot describe.
CUresult copy_inside(const DriverTable& driver, const copy::Shape& shape, const copy::Location& to,
                     const copy::Location& from, CUstream stream);

// Rows without gaps, which can be copied in runs of bytes. An array has none.
inline bool is_dense_memory(const copy::Shape& shape, const copy::Location& end) {
  return end.kind == copy::Location::Kind::kDevice && is_dense(shape, end.rows);
}

}  // namespace fargpu::server

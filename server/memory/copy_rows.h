// The driver's copy of a shape between host memory and device memory, whatever the host memory is.
#pragma once

#include <cuda.h>

#include "common/copy/shape.h"

namespace fargpu::server {

struct DriverTable;

// Puts a possible shape into the stream: as one driver call, or as one for each slice where the
// driver cannot describe the slices.
CUresult copy_rows(const DriverTable& driver, const copy::Shape& shape, const copy::Rows& device,
                   const copy::Rows& host, bool to_device, CUstream stream);

}  // namespace fargpu::server

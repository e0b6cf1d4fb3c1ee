// The shape of a copy whose host side is packed rows in staging memory, however the rows got there.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace fargpu::server {

struct DriverTable;

struct Shape {
  size_t pitch, slice_pitch, width, height, depth;  // pitches of the device side
};

// The rows fill exactly `bytes` on the host side, and the device side's extent is representable.
bool is_consistent(const Shape& shape, uint64_t bytes);
// One driver call for each slice, or one for all when the rows are contiguous.
CUresult copy_slices(const DriverTable& driver, const Shape& shape, CUdeviceptr device,
                     std::byte* host, bool to_device, CUstream stream);

}  // namespace fargpu::server

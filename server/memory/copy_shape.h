// The shape of a copy whose host side is packed rows in staging memory, shared by the ways in which
// those get there.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace fargpu::server {

class Worker;

struct Shape {
  size_t pitch, slice_pitch, width, height, depth;  // pitches of the device side
};

// The rows fill exactly `bytes` on the host side, and the device side's extent is representable.
bool is_consistent(const Shape& shape, uint64_t bytes);
// One driver call for each slice, or one for all when the rows are contiguous.
CUresult copy_slices(Worker& worker, const Shape& shape, CUdeviceptr device, std::byte* host,
                     bool to_device, CUstream stream);

// For a copy to the device that is in `stream` now: what its CopyOrder asks for. `id`: the stream's
// in the frame.
CUresult order_copy(Worker& worker, int order, uint64_t id);

}  // namespace fargpu::server

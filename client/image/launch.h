// The checks of a launch before it is sent, and the packing of its parameters. Pure functions,
// except check_cooperative.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>
#include <span>

#include "client/object/device.h"
#include "client/object/image_records.h"

namespace fargpu::client {

enum class LaunchKind : int { kPlain = 0, kCooperative = 1, kEx = 2 };  // as fgLaunch's `kind`

struct LaunchShape {
  std::array<unsigned, 3> grid;
  std::array<unsigned, 3> block;
  unsigned shared_bytes = 0;
};

// Into a message: `builder` has these fields under the names of all messages with a launch.
template <typename Builder>
void put_shape(Builder& builder, const LaunchShape& shape) {
  builder.setGridX(shape.grid[0]);
  builder.setGridY(shape.grid[1]);
  builder.setGridZ(shape.grid[2]);
  builder.setBlockX(shape.block[0]);
  builder.setBlockY(shape.block[1]);
  builder.setBlockZ(shape.block[2]);
  builder.setSharedBytes(shape.shared_bytes);
}

// CUDA_ERROR_INVALID_VALUE for shapes that the device, the function's shared memory or its required
// block do not allow, LAUNCH_OUT_OF_RESOURCES for more threads than the function's registers allow,
// INVALID_CLUSTER_SIZE for a grid that is not whole clusters of the required size.
CUresult check_launch(const LaunchShape& shape, const Device& device, const Function& function,
                      const FunctionAttributes& attributes);

// Packs kernelParams or `extra` by the function's layout. `buffer`: function.parameter_bytes long.
// *packed: in `buffer`. CUDA_ERROR_INVALID_VALUE when neither or both are given, or a pointer is
// missing.
CUresult pack_parameters(const Function& function, void** kernel_params, void** extra,
                         std::byte* buffer, std::span<const std::byte>* packed);

// CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE when the grid does not fit on the current device at once.
// May ask the server once per shape.
CUresult check_cooperative(const LaunchShape& shape, CUfunction function);

}  // namespace fargpu::client

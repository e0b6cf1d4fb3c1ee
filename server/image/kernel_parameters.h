// Where a kernel's parameters lie, as its image says: for drivers before CUDA 12.4, which do not
// tell it.
#pragma once

#include <cstddef>
#include <span>

#include "server/image/parameter_layouts.h"

namespace fargpu::server {

// Of all kernels in a cubin, a PTX text or a fat binary of them, as far as they can be read. Reads
// nothing outside the image. Pure; takes about as long as unpacking the image.
KernelLayouts layouts_in_image(std::span<const std::byte> image);

}  // namespace fargpu::server

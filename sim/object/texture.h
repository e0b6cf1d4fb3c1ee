// Making and destroying texture and surface objects.
#pragma once

#include <cuda.h>

#include <memory>

#include "sim/context/texture_object.h"

namespace fargpu::sim {

// INVALID_VALUE, INVALID_HANDLE: a description that cannot be; NOT_SUPPORTED: a view of compressed
// blocks, which are not simulated.
CUresult make_texture(Context& context, const CUDA_RESOURCE_DESC& resource,
                      const CUDA_TEXTURE_DESC& description, const CUDA_RESOURCE_VIEW_DESC* view,
                      std::shared_ptr<TextureObject>* object);
CUresult make_surface(Context& context, const CUDA_RESOURCE_DESC& resource,
                      std::shared_ptr<SurfaceObject>* object);

// Takes the object of this value out. Kernels that were launched before still find its image.
// False: there is none.
bool destroy_texture(uint64_t value);
bool destroy_surface(uint64_t value);

}  // namespace fargpu::sim

// Texture and surface objects: the program's descriptions, and the image for kernels. Immutable; an
// array that one was made of is kept as long as it.
#pragma once

#include <cuda.h>

#include <memory>
#include <optional>

#include "sim/base/registry.h"
#include "sim/image/image.h"

namespace fargpu::sim {

class Context;

struct TextureObject {
  static constexpr ObjectKind kKind = ObjectKind::kTexture;
  CUDA_RESOURCE_DESC resource{};
  CUDA_TEXTURE_DESC description{};
  std::optional<CUDA_RESOURCE_VIEW_DESC> view;
  std::shared_ptr<const Texture> texture;
  std::weak_ptr<Context> context;
};

struct SurfaceObject {
  static constexpr ObjectKind kKind = ObjectKind::kSurface;
  CUDA_RESOURCE_DESC resource{};
  std::shared_ptr<const Surface> surface;
  std::weak_ptr<Context> context;
};

}  // namespace fargpu::sim

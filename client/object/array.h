// Records of arrays, mipmapped arrays, textures and surfaces: the application's descriptions of
// them. Filled in before the application learns the handle; then only `parts` change.
#pragma once

#include <cuda.h>

#include <map>
#include <mutex>
#include <optional>

#include "client/object/object.h"

namespace fargpu::client {

// Arrays that are parts of another object: the same handle whenever one is asked for.
struct ArrayParts {
  std::mutex mutex;
  std::map<unsigned, uint64_t> ids;  // by level or plane; guarded by mutex
};

struct Array final : Object {
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  ArrayParts parts;  // planes
};

struct MipmappedArray final : Object {
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  ArrayParts parts;  // levels
};

// The application knows these by values of the driver, which mean something in their context only;
// the id is between client and worker.
struct TextureRecord final : Object {
  unsigned long long value = 0;
  CUDA_RESOURCE_DESC resource{};
  CUDA_TEXTURE_DESC texture{};                  // not of surfaces
  std::optional<CUDA_RESOURCE_VIEW_DESC> view;  // the same
};

}  // namespace fargpu::client

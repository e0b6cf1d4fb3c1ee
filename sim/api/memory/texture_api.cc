// Texture objects. Their values are registry handles, which kernels name them by.
#include "sim/object/api.h"
#include "sim/object/texture.h"

using namespace fargpu::sim;

namespace {

template <typename Read>
CUresult read(CUtexObject object, const void* out, Read&& body) {
  return with_context([&](Context&) -> CUresult {
    const auto found = Driver::get().registry().find<TextureObject>(object);
    return out != nullptr && found ? body(*found) : CUDA_ERROR_INVALID_VALUE;
  });
}

}  // namespace

CUresult CUDAAPI cuTexObjectCreate(CUtexObject* pTexObject, const CUDA_RESOURCE_DESC* pResDesc,
                                   const CUDA_TEXTURE_DESC* pTexDesc,
                                   const CUDA_RESOURCE_VIEW_DESC* pResViewDesc) {
  return with_context([&](Context& context) -> CUresult {
    if (pTexObject == nullptr || pResDesc == nullptr || pTexDesc == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<TextureObject> object;
    if (CUresult result = make_texture(context, *pResDesc, *pTexDesc, pResViewDesc, &object);
        result != CUDA_SUCCESS)
      return result;
    *pTexObject = Driver::get().registry().add(std::move(object), context.id());
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuTexObjectDestroy(CUtexObject texObject) {
  return with_context([&](Context&) -> CUresult {
    return texObject == 0 || destroy_texture(texObject) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult CUDAAPI cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* pResDesc, CUtexObject texObject) {
  return read(texObject, pResDesc, [&](const TextureObject& object) {
    *pResDesc = object.resource;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC* pTexDesc, CUtexObject texObject) {
  return read(texObject, pTexDesc, [&](const TextureObject& object) {
    *pTexDesc = object.description;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC* pResViewDesc,
                                                CUtexObject texObject) {
  return read(texObject, pResViewDesc, [&](const TextureObject& object) {
    *pResViewDesc = object.view.value_or(CUDA_RESOURCE_VIEW_DESC{});
    return CUDA_SUCCESS;
  });
}

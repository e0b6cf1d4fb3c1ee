// Surface objects. Their values are registry handles, which kernels name them by.
#include "sim/object/api.h"
#include "sim/object/texture.h"

using namespace fargpu::sim;

CUresult CUDAAPI cuSurfObjectCreate(CUsurfObject* pSurfObject, const CUDA_RESOURCE_DESC* pResDesc) {
  return with_context([&](Context& context) -> CUresult {
    if (pSurfObject == nullptr || pResDesc == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<SurfaceObject> object;
    if (CUresult result = make_surface(context, *pResDesc, &object); result != CUDA_SUCCESS)
      return result;
    *pSurfObject = Driver::get().registry().add(std::move(object), context.id());
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuSurfObjectDestroy(CUsurfObject surfObject) {
  return with_context([&](Context&) -> CUresult {
    return surfObject == 0 || destroy_surface(surfObject) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult CUDAAPI cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* pResDesc,
                                             CUsurfObject surfObject) {
  return with_context([&](Context&) -> CUresult {
    const auto found = Driver::get().registry().find<SurfaceObject>(surfObject);
    if (pResDesc == nullptr || !found) return CUDA_ERROR_INVALID_VALUE;
    *pResDesc = found->resource;
    return CUDA_SUCCESS;
  });
}

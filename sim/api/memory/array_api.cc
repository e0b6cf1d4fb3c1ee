// Arrays and mipmapped arrays: creation, description, parts, destruction.
#include "sim/object/api.h"
#include "sim/object/array.h"

using namespace fargpu::sim;

namespace {

// An array or mipmapped array with its parts.
template <typename Whole, typename Handle>
void enter(Context& context, std::shared_ptr<Whole> whole, Handle* handle) {
  Registry& registry = Driver::get().registry();
  whole->context = context.weak_from_this();
  for (const auto& part : whole->parts()) {
    part->context = whole->context;
    whole->part_handles.push_back(registry.add(part, context.id()));
  }
  *handle = to_handle<Handle>(registry.add(std::move(whole), context.id()));
}

CUresult create(const CUDA_ARRAY3D_DESCRIPTOR& descriptor, CUarray* handle) {
  return with_context([&](Context& context) -> CUresult {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<Array> array;
    if (CUresult result = Array::create(context, descriptor, &array); result != CUDA_SUCCESS)
      return result;
    enter(context, std::move(array), handle);
    return CUDA_SUCCESS;
  });
}

template <typename Whole, typename Handle>
CUresult get_part(Handle whole, unsigned index, CUarray* part) {
  return with_context_of(whole, [&](Context&) -> CUresult {
    if (part == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto found = Driver::get().registry().find<Whole>(whole);
    if (!found) return CUDA_ERROR_INVALID_HANDLE;
    if (index >= found->part_handles.size()) return CUDA_ERROR_INVALID_VALUE;
    *part = to_handle<CUarray>(found->part_handles[index]);
    return CUDA_SUCCESS;
  });
}

// Waits for work that may use the elements.
template <typename Whole, typename Handle>
CUresult destroy(Context& context, Handle handle) {
  Registry& registry = Driver::get().registry();
  context.quiesce();
  const auto whole = registry.remove<Whole>(handle);
  if (!whole) return CUDA_ERROR_INVALID_HANDLE;
  for (const uint64_t part : whole->part_handles) registry.remove<Array>(part);
  return context.error();
}

template <typename Whole, typename Handle, typename Read>
CUresult read(Handle handle, const void* out, Read&& body) {
  return with_context_of(handle, [&](Context&) -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto found = Driver::get().registry().find<Whole>(handle);
    return found ? body(*found) : CUDA_ERROR_INVALID_HANDLE;
  });
}

template <typename Whole, typename Handle>
CUresult sparse_properties(Handle handle, CUDA_ARRAY_SPARSE_PROPERTIES* properties) {
  if (Driver::initialized() && handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return read<Whole>(handle, properties, [&](const Whole& whole) {
    if (whole.sparse() == nullptr || whole.is_part()) return CUDA_ERROR_INVALID_VALUE;
    *properties = whole.sparse()->properties();
    return CUDA_SUCCESS;
  });
}

// Arrays that get their memory as a whole are not simulated.
template <typename Whole, typename Handle>
CUresult not_deferred(Handle handle, const void* out) {
  return read<Whole>(handle, out, [](const Whole&) { return CUDA_ERROR_INVALID_VALUE; });
}

}  // namespace

CUresult CUDAAPI cuArrayCreate_v2(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR* pAllocateArray) {
  if (pAllocateArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return create({pAllocateArray->Width, pAllocateArray->Height, 0, pAllocateArray->Format,
                 pAllocateArray->NumChannels, 0},
                pHandle);
}

CUresult CUDAAPI cuArray3DCreate_v2(CUarray* pHandle,
                                    const CUDA_ARRAY3D_DESCRIPTOR* pAllocateArray) {
  if (pAllocateArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return create(*pAllocateArray, pHandle);
}

CUresult CUDAAPI cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* pArrayDescriptor, CUarray hArray) {
  return read<Array>(hArray, pArrayDescriptor, [&](const Array& array) {
    const CUDA_ARRAY3D_DESCRIPTOR& d = array.descriptor();
    *pArrayDescriptor = {d.Width, d.Height, d.Format, d.NumChannels};
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* pArrayDescriptor,
                                           CUarray hArray) {
  return read<Array>(hArray, pArrayDescriptor, [&](const Array& array) {
    *pArrayDescriptor = array.descriptor();
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuArrayGetPlane(CUarray* pPlaneArray, CUarray hArray, unsigned int planeIdx) {
  return get_part<Array>(hArray, planeIdx, pPlaneArray);
}

CUresult CUDAAPI cuArrayDestroy(CUarray hArray) {
  return with_context_of(hArray, [&](Context& context) -> CUresult {
    const auto array = Driver::get().registry().find<Array>(hArray);
    if (!array || array->is_part()) return CUDA_ERROR_INVALID_HANDLE;
    return destroy<Array>(context, hArray);
  });
}

CUresult CUDAAPI cuMipmappedArrayCreate(CUmipmappedArray* pHandle,
                                        const CUDA_ARRAY3D_DESCRIPTOR* pMipmappedArrayDesc,
                                        unsigned int numMipmapLevels) {
  return with_context([&](Context& context) -> CUresult {
    if (pHandle == nullptr || pMipmappedArrayDesc == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<MipmappedArray> array;
    if (CUresult result =
            MipmappedArray::create(context, *pMipmappedArrayDesc, numMipmapLevels, &array);
        result != CUDA_SUCCESS)
      return result;
    enter(context, std::move(array), pHandle);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMipmappedArrayGetLevel(CUarray* pLevelArray, CUmipmappedArray hMipmappedArray,
                                          unsigned int level) {
  return get_part<MipmappedArray>(hMipmappedArray, level, pLevelArray);
}

CUresult CUDAAPI cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray) {
  return with_context_of(hMipmappedArray, [&](Context& context) -> CUresult {
    if (!Driver::get().registry().find<MipmappedArray>(hMipmappedArray))
      return CUDA_ERROR_INVALID_HANDLE;
    return destroy<MipmappedArray>(context, hMipmappedArray);
  });
}

CUresult CUDAAPI cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES* sparseProperties,
                                            CUarray array) {
  return sparse_properties<Array>(array, sparseProperties);
}
CUresult CUDAAPI cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES* sparseProperties,
                                                     CUmipmappedArray mipmap) {
  return sparse_properties<MipmappedArray>(mipmap, sparseProperties);
}
CUresult CUDAAPI cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* memoryRequirements,
                                              CUarray array, CUdevice device) {
  if (Driver::initialized() && Driver::get().device(device) == nullptr)
    return CUDA_ERROR_INVALID_DEVICE;
  return not_deferred<Array>(array, memoryRequirements);
}
CUresult CUDAAPI cuMipmappedArrayGetMemoryRequirements(
    CUDA_ARRAY_MEMORY_REQUIREMENTS* memoryRequirements, CUmipmappedArray mipmap, CUdevice device) {
  if (Driver::initialized() && Driver::get().device(device) == nullptr)
    return CUDA_ERROR_INVALID_DEVICE;
  return not_deferred<MipmappedArray>(mipmap, memoryRequirements);
}

// Arrays and mipmapped arrays: what they are described by is kept here, their elements are the
// worker's.
#include "client/object/array.h"

#include <algorithm>

#include "client/manual/common.h"

namespace fargpu::client {
namespace {

using rpc::HandleKind;

template <typename Record, typename Handle>
Record* find(HandleKind kind, Handle handle) {
  const CallTarget target = CallTarget::of(handle);
  return static_cast<Record*>(target.session.find(kind, reinterpret_cast<uint64_t>(handle)));
}
Array* find_array(CUarray handle) { return find<Array>(HandleKind::kArray, handle); }

void describe(Session& session, CUarray handle, const CUDA_ARRAY3D_DESCRIPTOR& descriptor) {
  auto* const array =
      static_cast<Array*>(session.find(HandleKind::kArray, reinterpret_cast<uint64_t>(handle)));
  if (array != nullptr) array->descriptor = descriptor;
}

// The part's handle, from `get(out)` when it is asked for the first time.
template <typename Get>
CUresult get_part(Session& session, ArrayParts& parts, unsigned index, CUarray* part,
                  const CUDA_ARRAY3D_DESCRIPTOR& descriptor, Get&& get) {
  const std::lock_guard lock(parts.mutex);
  if (const auto known = parts.ids.find(index); known != parts.ids.end()) {
    // Unless a driver let it be destroyed by itself.
    if (session.find(HandleKind::kArray, known->second) != nullptr) {
      *part = reinterpret_cast<CUarray>(known->second);
      return CUDA_SUCCESS;
    }
  }
  const CUresult result = get(part);
  if (result != CUDA_SUCCESS) return result;
  describe(session, *part, descriptor);
  parts.ids[index] = reinterpret_cast<uint64_t>(*part);
  return CUDA_SUCCESS;
}

CUDA_ARRAY3D_DESCRIPTOR level_of(const CUDA_ARRAY3D_DESCRIPTOR& whole, unsigned level) {
  CUDA_ARRAY3D_DESCRIPTOR descriptor = whole;
  const auto shrink = [level](size_t extent) {
    return extent == 0 || level >= 64 ? std::min<size_t>(extent, 1)
                                      : std::max<size_t>(extent >> level, 1);
  };
  descriptor.Width = shrink(whole.Width);
  descriptor.Height = shrink(whole.Height);
  if ((whole.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) == 0)
    descriptor.Depth = shrink(whole.Depth);
  return descriptor;
}

}  // namespace

CUresult manual_cuArrayCreate_v2(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR* pAllocateArray) {
  if (pAllocateArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CallTarget target = CallTarget::of_current();
  const CUDA_ARRAY_DESCRIPTOR array = *pAllocateArray;
  const CUresult result = call_cuArrayCreate_v2(target.session, target.context, pHandle, &array);
  if (result == CUDA_SUCCESS) {
    describe(target.session, *pHandle,
             {array.Width, array.Height, 0, array.Format, array.NumChannels, 0});
  }
  return result;
}

CUresult manual_cuArray3DCreate_v2(CUarray* pHandle,
                                   const CUDA_ARRAY3D_DESCRIPTOR* pAllocateArray) {
  if (pAllocateArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CallTarget target = CallTarget::of_current();
  const CUDA_ARRAY3D_DESCRIPTOR array = *pAllocateArray;
  const CUresult result = call_cuArray3DCreate_v2(target.session, target.context, pHandle, &array);
  if (result == CUDA_SUCCESS) describe(target.session, *pHandle, array);
  return result;
}

CUresult manual_cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* pArrayDescriptor, CUarray hArray) {
  if (pArrayDescriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Array* const array = find_array(hArray);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const CUDA_ARRAY3D_DESCRIPTOR& d = array->descriptor;
  *pArrayDescriptor = {d.Width, d.Height, d.Format, d.NumChannels};
  return CUDA_SUCCESS;
}

CUresult manual_cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* pArrayDescriptor,
                                          CUarray hArray) {
  if (pArrayDescriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Array* const array = find_array(hArray);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *pArrayDescriptor = array->descriptor;
  return CUDA_SUCCESS;
}

CUresult manual_cuArrayGetPlane(CUarray* pPlaneArray, CUarray hArray, unsigned int planeIdx) {
  if (pPlaneArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CallTarget target = CallTarget::of(hArray);
  Array* const whole = find_array(hArray);
  if (whole == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  // Of the format that the documentation tells; of others the driver's answer is asked for.
  CUDA_ARRAY3D_DESCRIPTOR plane = whole->descriptor;
  if (plane.Format == CU_AD_FORMAT_NV12) {
    const unsigned shrunk = planeIdx == 0 ? 1 : 2;
    plane.Format = CU_AD_FORMAT_UNSIGNED_INT8;
    plane.NumChannels = shrunk;
    plane.Width /= shrunk;
    plane.Height /= shrunk;
  }
  return get_part(target.session, whole->parts, planeIdx, pPlaneArray, plane, [&](CUarray* part) {
    return call_cuArrayGetPlane(target.session, target.context, part, hArray, planeIdx);
  });
}

CUresult manual_cuMipmappedArrayCreate(CUmipmappedArray* pHandle,
                                       const CUDA_ARRAY3D_DESCRIPTOR* pMipmappedArrayDesc,
                                       unsigned int numMipmapLevels) {
  if (pMipmappedArrayDesc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CallTarget target = CallTarget::of_current();
  const CUDA_ARRAY3D_DESCRIPTOR levels = *pMipmappedArrayDesc;
  const CUresult result = call_cuMipmappedArrayCreate(target.session, target.context, pHandle,
                                                      &levels, numMipmapLevels);
  if (result != CUDA_SUCCESS) return result;
  auto* const array = static_cast<MipmappedArray*>(
      target.session.find(HandleKind::kMipmappedArray, reinterpret_cast<uint64_t>(*pHandle)));
  if (array != nullptr) array->descriptor = levels;
  return CUDA_SUCCESS;
}

CUresult manual_cuMipmappedArrayGetLevel(CUarray* pLevelArray, CUmipmappedArray hMipmappedArray,
                                         unsigned int level) {
  if (pLevelArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CallTarget target = CallTarget::of(hMipmappedArray);
  auto* const whole = find<MipmappedArray>(HandleKind::kMipmappedArray, hMipmappedArray);
  if (whole == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return get_part(target.session, whole->parts, level, pLevelArray,
                  level_of(whole->descriptor, level), [&](CUarray* part) {
                    return call_cuMipmappedArrayGetLevel(target.session, target.context, part,
                                                         hMipmappedArray, level);
                  });
}

}  // namespace fargpu::client

// Texture and surface objects: kernels are given the driver's values, so the application is, too.
// Their descriptions are kept here.
#include "client/manual/common.h"
#include "client/object/array.h"
#include "client/transfer/exposure.h"

namespace fargpu::client {
namespace {

using rpc::HandleKind;

TextureTable& textures() { return Process::get().tables()->textures; }

// What a resource is made of must be the session's.
CUresult check(Session& session, const CUDA_RESOURCE_DESC& resource) {
  const auto find = [&session](HandleKind kind, const void* handle) {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const bool live = session.find(kind, reinterpret_cast<uint64_t>(handle)) != nullptr;
    return live ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  };
  const auto memory = [&session](CUdeviceptr address) {
    const auto region = session.device_memory.find(address);
    if (region && region->session != &session) return CUDA_ERROR_INVALID_VALUE;
    return expose_operands(session, {address});
  };
  switch (resource.resType) {
    case CU_RESOURCE_TYPE_ARRAY:
      return find(HandleKind::kArray, resource.res.array.hArray);
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      return find(HandleKind::kMipmappedArray, resource.res.mipmap.hMipmappedArray);
    case CU_RESOURCE_TYPE_LINEAR:
      return memory(resource.res.linear.devPtr);
    case CU_RESOURCE_TYPE_PITCH2D:
      return memory(resource.res.pitch2D.devPtr);
  }
  return CUDA_ERROR_INVALID_VALUE;
}

TextureRecord* find_record(Session& session, HandleKind kind, uint64_t value) {
  const uint64_t id = textures().find(current_context(), kind, value);
  return id == 0 ? nullptr : static_cast<TextureRecord*>(session.find(kind, id));
}

// `set` fills in the description of a new object before it can be found by its value.
template <typename Set>
void enter(Session& session, HandleKind kind, uint64_t id, uint64_t value, Set&& set) {
  auto* const record = static_cast<TextureRecord*>(session.find(kind, id));
  // The context has ended meanwhile, and the object with it.
  if (record == nullptr) return;
  record->value = value;
  set(*record);
  textures().add(*record);
}

template <typename Read>
CUresult read(HandleKind kind, uint64_t value, const void* out, Read&& body) {
  const CallTarget target = CallTarget::of_current();
  const TextureRecord* const record = find_record(target.session, kind, value);
  return out != nullptr && record != nullptr ? body(*record) : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult manual_cuTexObjectCreate(CUtexObject* pTexObject, const CUDA_RESOURCE_DESC* pResDesc,
                                  const CUDA_TEXTURE_DESC* pTexDesc,
                                  const CUDA_RESOURCE_VIEW_DESC* pResViewDesc) {
  if (pTexObject == nullptr || pResDesc == nullptr || pTexDesc == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  const CallTarget target = CallTarget::of_current();
  if (const CUresult result = check(target.session, *pResDesc); result != CUDA_SUCCESS)
    return result;
  CUtexObject id = 0;
  unsigned long long value = 0;
  const CUresult result = call_fgTexObjectCreate(target.session, target.context, pResDesc, pTexDesc,
                                                 pResViewDesc, &id, &value);
  if (result != CUDA_SUCCESS) return result;
  enter(target.session, HandleKind::kTexObject, id, value, [&](TextureRecord& record) {
    record.resource = *pResDesc;
    record.texture = *pTexDesc;
    if (pResViewDesc != nullptr) record.view = *pResViewDesc;
  });
  *pTexObject = value;
  return CUDA_SUCCESS;
}

CUresult manual_cuTexObjectDestroy(CUtexObject texObject) {
  if (texObject == 0) return CUDA_SUCCESS;
  const CallTarget target = CallTarget::of_current();
  const TextureRecord* const record =
      find_record(target.session, HandleKind::kTexObject, texObject);
  if (record == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return call_fgTexObjectDestroy(target.session, target.context, record->id);
}

CUresult manual_cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* pResDesc, CUtexObject texObject) {
  return read(HandleKind::kTexObject, texObject, pResDesc, [&](const TextureRecord& record) {
    *pResDesc = record.resource;
    return CUDA_SUCCESS;
  });
}

CUresult manual_cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC* pTexDesc, CUtexObject texObject) {
  return read(HandleKind::kTexObject, texObject, pTexDesc, [&](const TextureRecord& record) {
    *pTexDesc = record.texture;
    return CUDA_SUCCESS;
  });
}

CUresult manual_cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC* pResViewDesc,
                                               CUtexObject texObject) {
  return read(HandleKind::kTexObject, texObject, pResViewDesc, [&](const TextureRecord& record) {
    *pResViewDesc = record.view.value_or(CUDA_RESOURCE_VIEW_DESC{});
    return CUDA_SUCCESS;
  });
}

CUresult manual_cuSurfObjectCreate(CUsurfObject* pSurfObject, const CUDA_RESOURCE_DESC* pResDesc) {
  if (pSurfObject == nullptr || pResDesc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (pResDesc->resType != CU_RESOURCE_TYPE_ARRAY) return CUDA_ERROR_INVALID_VALUE;
  const CallTarget target = CallTarget::of_current();
  if (const CUresult result = check(target.session, *pResDesc); result != CUDA_SUCCESS)
    return result;
  CUsurfObject id = 0;
  unsigned long long value = 0;
  const CUresult result =
      call_fgSurfObjectCreate(target.session, target.context, pResDesc, &id, &value);
  if (result != CUDA_SUCCESS) return result;
  enter(target.session, HandleKind::kSurfObject, id, value,
        [&](TextureRecord& record) { record.resource = *pResDesc; });
  *pSurfObject = value;
  return CUDA_SUCCESS;
}

CUresult manual_cuSurfObjectDestroy(CUsurfObject surfObject) {
  if (surfObject == 0) return CUDA_SUCCESS;
  const CallTarget target = CallTarget::of_current();
  const TextureRecord* const record =
      find_record(target.session, HandleKind::kSurfObject, surfObject);
  if (record == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return call_fgSurfObjectDestroy(target.session, target.context, record->id);
}

CUresult manual_cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* pResDesc, CUsurfObject surfObject) {
  return read(HandleKind::kSurfObject, surfObject, pResDesc, [&](const TextureRecord& record) {
    *pResDesc = record.resource;
    return CUDA_SUCCESS;
  });
}

}  // namespace fargpu::client

// Texture and surface objects: the driver's value goes to the client, which names the object by an
// id of its own.
#include "generated/server/internal_decode.h"
#include "server/manual/manual.h"

namespace fargpu::server {
namespace {

using rpc::HandleKind;

// Ids of arrays become the driver's handles; what else may be an address of this process is none.
CUresult resolve(Worker& worker, CUDA_RESOURCE_DESC* resource) {
  switch (resource->resType) {
    case CU_RESOURCE_TYPE_ARRAY:
      return find_handle(worker, HandleKind::kArray, handle_id(resource->res.array.hArray),
                         &resource->res.array.hArray);
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      return find_handle(worker, HandleKind::kMipmappedArray,
                         handle_id(resource->res.mipmap.hMipmappedArray),
                         &resource->res.mipmap.hMipmappedArray);
    case CU_RESOURCE_TYPE_LINEAR:
    case CU_RESOURCE_TYPE_PITCH2D:
      return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

// Enters what the driver has made, and answers with its value.
template <typename Results>
Status answer_with(Worker& worker, const Request& request, const char* name, HandleKind kind,
                   uint64_t id, unsigned long long value, CUresult (*destroy)(unsigned long long)) {
  const CUresult added = worker.add(kind, id, handle_pointer(value), request.header.context);
  if (added != CUDA_SUCCESS) {
    destroy(value);
    return refused_id(worker, request, name, added);
  }
  rpc::Responder::Frame frame(worker.responder(), request.header, schema::fixed_bytes<Results>());
  frame.init<Results>().setValue(value);
  return frame.send(CUDA_SUCCESS);
}

// Of the frame's context: in another one the value may be that of another object.
Status destroy_object(Worker& worker, const Request& request, uint64_t id, unsigned long long value,
                      CUresult (*destroy)(unsigned long long)) {
  if (worker.parts().handles.context_of(id) != request.header.context)
    return answer(worker, request, CUDA_ERROR_INVALID_VALUE);
  FARGPU_ANSWER_UNLESS_SUCCESS(destroy(value));
  worker.remove(id);
  return answer(worker, request, CUDA_SUCCESS);
}

}  // namespace

Status manual_fgTexObjectCreate(Worker& worker, const Request& request) {
  return decode_fgTexObjectCreate(worker, request, [&](const auto& given) -> Status {
    FARGPU_NEEDS_DRIVER(cuTexObjectCreate);
    FARGPU_NEEDS_DRIVER(cuTexObjectDestroy);
    FARGPU_ANSWER_UNLESS_SUCCESS(resolve(worker, given.resource));
    CUtexObject value = 0;
    FARGPU_ANSWER_UNLESS_SUCCESS(
        worker.driver().cuTexObjectCreate(&value, given.resource, given.texture, given.view));
    return answer_with<schema::FgTexObjectCreateResults>(worker, request, "fgTexObjectCreate",
                                                         HandleKind::kTexObject, given.object_id,
                                                         value, worker.driver().cuTexObjectDestroy);
  });
}

Status manual_fgTexObjectDestroy(Worker& worker, const Request& request) {
  return decode_fgTexObjectDestroy(worker, request, [&](const auto& given) -> Status {
    FARGPU_NEEDS_DRIVER(cuTexObjectDestroy);
    return destroy_object(worker, request, given.object_id, given.object,
                          worker.driver().cuTexObjectDestroy);
  });
}

Status manual_fgSurfObjectCreate(Worker& worker, const Request& request) {
  return decode_fgSurfObjectCreate(worker, request, [&](const auto& given) -> Status {
    FARGPU_NEEDS_DRIVER(cuSurfObjectCreate);
    FARGPU_NEEDS_DRIVER(cuSurfObjectDestroy);
    FARGPU_ANSWER_UNLESS_SUCCESS(resolve(worker, given.resource));
    CUsurfObject value = 0;
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.driver().cuSurfObjectCreate(&value, given.resource));
    return answer_with<schema::FgSurfObjectCreateResults>(
        worker, request, "fgSurfObjectCreate", HandleKind::kSurfObject, given.object_id, value,
        worker.driver().cuSurfObjectDestroy);
  });
}

Status manual_fgSurfObjectDestroy(Worker& worker, const Request& request) {
  return decode_fgSurfObjectDestroy(worker, request, [&](const auto& given) -> Status {
    FARGPU_NEEDS_DRIVER(cuSurfObjectDestroy);
    return destroy_object(worker, request, given.object_id, given.object,
                          worker.driver().cuSurfObjectDestroy);
  });
}

}  // namespace fargpu::server

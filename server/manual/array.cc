// Arrays and mipmapped arrays: their elements are charged like other device memory.
#include <utility>

#include "generated/server/memory_decode.h"
#include "schema/support/array_size.h"
#include "server/manual/manual.h"

namespace fargpu::server {
namespace {

using rpc::HandleKind;

// Arrays that get their memory later, by mappings, hold none.
uint64_t bytes_of(const CUDA_ARRAY3D_DESCRIPTOR& descriptor, unsigned levels) {
  constexpr unsigned kWithoutMemory = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING;
  return (descriptor.Flags & kWithoutMemory) != 0 ? 0 : schema::array_bytes(descriptor, levels);
}

// `make(handle)` is the driver's call, `destroy` undoes it.
template <typename Handle, typename Make>
Status create(Worker& worker, const Request& request, const char* name, HandleKind kind,
              uint64_t id, uint64_t bytes, Make&& make, CUresult (*destroy)(Handle)) {
  // No memory is that large.
  if (bytes == UINT64_MAX) return answer(worker, request, CUDA_ERROR_INVALID_VALUE);
  FARGPU_ANSWER_UNLESS_SUCCESS(worker.charge(bytes));
  Handle handle = nullptr;
  const CUresult result = make(&handle);
  if (result != CUDA_SUCCESS) {
    worker.refund(bytes);
    return answer(worker, request, result);
  }
  const CUresult added = worker.add(kind, id, handle, request.header.context);
  if (added != CUDA_SUCCESS) {
    destroy(handle);
    worker.refund(bytes);
    return refused_id(worker, request, name, added);
  }
  worker.parts().memory.remember_array(id, bytes);
  return answer(worker, request, CUDA_SUCCESS);
}

// The driver waits for what may use the elements, as when it frees memory.
template <typename Handle>
Status destroy(Worker& worker, const Request& request, uint64_t id, Handle handle,
               CUresult (*driver_destroy)(Handle)) {
  const LaterReply later(worker, request);
  worker.parts().completion.off_thread_when_idle(
      request.header.context, [driver_destroy, handle] { return driver_destroy(handle); },
      [later, id](CUresult result) {
        if (result == CUDA_SUCCESS) later.worker().remove(id);
        later.send(result);
      });
  return Status();
}

}  // namespace

Status manual_cuArrayCreate_v2(Worker& worker, const Request& request) {
  return decode_cuArrayCreate_v2(worker, request, [&](const auto& given) -> Status {
    FARGPU_NEEDS_DRIVER(cuArrayDestroy);
    const CUDA_ARRAY_DESCRIPTOR& descriptor = *given.pAllocateArray;
    const CUDA_ARRAY3D_DESCRIPTOR whole{descriptor.Width,  descriptor.Height,      0,
                                        descriptor.Format, descriptor.NumChannels, 0};
    return create<CUarray>(
        worker, request, "cuArrayCreate_v2", HandleKind::kArray, given.pHandle_id,
        bytes_of(whole, 1),
        [&](CUarray* array) { return worker.driver().cuArrayCreate_v2(array, &descriptor); },
        worker.driver().cuArrayDestroy);
  });
}

Status manual_cuArray3DCreate_v2(Worker& worker, const Request& request) {
  return decode_cuArray3DCreate_v2(worker, request, [&](const auto& given) -> Status {
    FARGPU_NEEDS_DRIVER(cuArrayDestroy);
    const CUDA_ARRAY3D_DESCRIPTOR& descriptor = *given.pAllocateArray;
    return create<CUarray>(
        worker, request, "cuArray3DCreate_v2", HandleKind::kArray, given.pHandle_id,
        bytes_of(descriptor, 1),
        [&](CUarray* array) { return worker.driver().cuArray3DCreate_v2(array, &descriptor); },
        worker.driver().cuArrayDestroy);
  });
}

Status manual_cuArrayDestroy(Worker& worker, const Request& request) {
  return decode_cuArrayDestroy(worker, request, [&](const auto& given) {
    return destroy(worker, request, given.hArray_id, given.hArray, worker.driver().cuArrayDestroy);
  });
}

Status manual_cuMipmappedArrayCreate(Worker& worker, const Request& request) {
  return decode_cuMipmappedArrayCreate(worker, request, [&](const auto& given) -> Status {
    FARGPU_NEEDS_DRIVER(cuMipmappedArrayDestroy);
    const CUDA_ARRAY3D_DESCRIPTOR& descriptor = *given.pMipmappedArrayDesc;
    const unsigned levels = given.numMipmapLevels;
    return create<CUmipmappedArray>(
        worker, request, "cuMipmappedArrayCreate", HandleKind::kMipmappedArray, given.pHandle_id,
        bytes_of(descriptor, levels),
        [&](CUmipmappedArray* array) {
          return worker.driver().cuMipmappedArrayCreate(array, &descriptor, levels);
        },
        worker.driver().cuMipmappedArrayDestroy);
  });
}

Status manual_cuMipmappedArrayDestroy(Worker& worker, const Request& request) {
  return decode_cuMipmappedArrayDestroy(worker, request, [&](const auto& given) {
    return destroy(worker, request, given.hMipmappedArray_id, given.hMipmappedArray,
                   worker.driver().cuMipmappedArrayDestroy);
  });
}

}  // namespace fargpu::server

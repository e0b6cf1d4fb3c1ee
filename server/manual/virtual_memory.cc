// Physical memory behind virtual mappings: charged until its last handle and its last mapping are
// gone.
#include "generated/server/virtual_memory_decode.h"
#include "server/manual/manual.h"

namespace fargpu::server {

Status manual_cuMemCreate(Worker& worker, const Request& request) {
  return decode_cuMemCreate(worker, request, [&](const auto& given) -> Status {
    const CUmemAllocationProp& properties = *given.prop;
    if (properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        (properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE &&
         properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) {
      return answer(worker, request, CUDA_ERROR_NOT_SUPPORTED);
    }
    const CUdevice device = properties.location.id;
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.parts().memory.charge(device, given.size));
    const auto where = static_cast<size_t>(device);
    CUmemGenericAllocationHandle handle = 0;
    const CUresult result =
        worker.driver().cuMemCreate(&handle, given.size, &properties, given.flags);
    if (result != CUDA_SUCCESS) {
      worker.parts().memory.refund(where, given.size);
      return answer(worker, request, result);
    }
    const CUresult added =
        worker.add(rpc::HandleKind::kMemGeneric, given.handle_id, handle_pointer(handle), 0);
    if (added != CUDA_SUCCESS) {
      worker.driver().cuMemRelease(handle);
      worker.parts().memory.refund(where, given.size);
      return refused_id(worker, request, "cuMemCreate", added);
    }
    worker.parts().memory.created(handle, where, given.size);
    return answer(worker, request, CUDA_SUCCESS);
  });
}

Status manual_cuMemRelease(Worker& worker, const Request& request) {
  return decode_cuMemRelease(worker, request, [&](const auto& given) -> Status {
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.driver().cuMemRelease(given.handle));
    worker.remove(given.handle_id);
    return answer(worker, request, CUDA_SUCCESS);
  });
}

Status manual_cuMemMap(Worker& worker, const Request& request) {
  return decode_cuMemMap(worker, request, [&](const auto& given) -> Status {
    FARGPU_ANSWER_UNLESS_SUCCESS(
        worker.driver().cuMemMap(given.ptr, given.size, given.offset, given.handle, given.flags));
    worker.parts().memory.mapped(given.ptr, given.size, given.handle);
    return answer(worker, request, CUDA_SUCCESS);
  });
}

Status manual_cuMemUnmap(Worker& worker, const Request& request) {
  return decode_cuMemUnmap(worker, request, [&](const auto& given) {
    const LaterReply later(worker, request);
    const PhysicalMemory::UnmapId unmap = worker.parts().memory.begin_unmap(given.ptr, given.size);
    worker.parts().completion.off_thread(
        request.header.context,
        [&driver = worker.driver(), pointer = given.ptr, bytes = given.size] {
          return driver.cuMemUnmap(pointer, bytes);
        },
        [later, unmap](CUresult result) {
          later.worker().parts().memory.end_unmap(unmap, result == CUDA_SUCCESS);
          later.send(result);
        });
    return Status();
  });
}

Status manual_cuMemRetainAllocationHandle(Worker& worker, const Request& request) {
  return decode_cuMemRetainAllocationHandle(worker, request, [&](const auto& given) -> Status {
    CUmemGenericAllocationHandle handle = 0;
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.driver().cuMemRetainAllocationHandle(&handle, given.addr));
    const CUresult added =
        worker.add(rpc::HandleKind::kMemGeneric, given.handle_id, handle_pointer(handle), 0);
    if (added != CUDA_SUCCESS) {
      worker.driver().cuMemRelease(handle);
      return refused_id(worker, request, "cuMemRetainAllocationHandle", added);
    }
    worker.parts().memory.retained(handle, reinterpret_cast<uint64_t>(given.addr));
    return answer(worker, request, CUDA_SUCCESS);
  });
}

}  // namespace fargpu::server

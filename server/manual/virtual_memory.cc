// Physical memory behind virtual mappings: charged until its last handle and its last mapping are
// gone.
#include "generated/schema/virtual_memory.capnp.h"
#include "server/manual/manual.h"

namespace fargpu::server {
Status manual_cuMemCreate(Worker& worker, const Request& request) {
  return decoded("cuMemCreate", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::CuMemCreateParams>();
    CUmemAllocationProp properties{};
    if (!read_struct(params.getProp(), &properties))
      return malformed("cuMemCreate", "prop has the wrong size");
    properties.win32HandleMetaData = nullptr;
    FARGPU_NEEDS_DRIVER(cuMemCreate);
    if (properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        (properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE &&
         properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) {
      return answer(worker, request, CUDA_ERROR_NOT_SUPPORTED);
    }
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.enter_context(request.header.context));
    const CUdevice device = properties.location.id;
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.parts().memory.charge(device, params.getSize()));
    const auto where = static_cast<size_t>(device);
    CUmemGenericAllocationHandle handle = 0;
    const CUresult result =
        worker.driver().cuMemCreate(&handle, params.getSize(), &properties, params.getFlags());
    if (result != CUDA_SUCCESS) {
      worker.parts().memory.refund(where, params.getSize());
      return answer(worker, request, result);
    }
    const CUresult added =
        worker.add(rpc::HandleKind::kMemGeneric, params.getHandle(), handle_pointer(handle), 0);
    if (added != CUDA_SUCCESS) {
      worker.driver().cuMemRelease(handle);
      worker.parts().memory.refund(where, params.getSize());
      return refused_id(worker, request, "cuMemCreate", added);
    }
    worker.parts().memory.created(handle, where, params.getSize());
    return answer(worker, request, CUDA_SUCCESS);
  });
}

Status manual_cuMemRelease(Worker& worker, const Request& request) {
  return decoded("cuMemRelease", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const uint64_t id = reader.getRoot<schema::CuMemReleaseParams>().getHandle();
    FARGPU_NEEDS_DRIVER(cuMemRelease);
    CUmemGenericAllocationHandle handle = 0;
    FARGPU_ANSWER_UNLESS_SUCCESS(find_handle(worker, rpc::HandleKind::kMemGeneric, id, &handle));
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.driver().cuMemRelease(handle));
    worker.remove(id);
    return answer(worker, request, CUDA_SUCCESS);
  });
}

Status manual_cuMemMap(Worker& worker, const Request& request) {
  return decoded("cuMemMap", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::CuMemMapParams>();
    FARGPU_NEEDS_DRIVER(cuMemMap);
    CUmemGenericAllocationHandle handle = 0;
    FARGPU_ANSWER_UNLESS_SUCCESS(
        find_handle(worker, rpc::HandleKind::kMemGeneric, params.getHandle(), &handle));
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.driver().cuMemMap(
        params.getPtr(), params.getSize(), params.getOffset(), handle, params.getFlags()));
    worker.parts().memory.mapped(params.getPtr(), params.getSize(), handle);
    return answer(worker, request, CUDA_SUCCESS);
  });
}

Status manual_cuMemUnmap(Worker& worker, const Request& request) {
  return decoded("cuMemUnmap", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::CuMemUnmapParams>();
    FARGPU_NEEDS_DRIVER(cuMemUnmap);
    const CUdeviceptr pointer = params.getPtr();
    const size_t bytes = params.getSize();
    const LaterReply later(worker, request);
    const PhysicalMemory::UnmapId unmap = worker.parts().memory.begin_unmap(pointer, bytes);
    worker.parts().completion.off_thread(
        request.header.context,
        [&driver = worker.driver(), pointer, bytes] { return driver.cuMemUnmap(pointer, bytes); },
        [later, unmap](CUresult result) {
          later.worker().parts().memory.end_unmap(unmap, result == CUDA_SUCCESS);
          later.send(result);
        });
    return Status();
  });
}

Status manual_cuMemRetainAllocationHandle(Worker& worker, const Request& request) {
  return decoded("cuMemRetainAllocationHandle", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::CuMemRetainAllocationHandleParams>();
    FARGPU_NEEDS_DRIVER(cuMemRetainAllocationHandle);
    CUmemGenericAllocationHandle handle = 0;
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.driver().cuMemRetainAllocationHandle(
        &handle, reinterpret_cast<void*>(params.getAddr())));
    const CUresult added =
        worker.add(rpc::HandleKind::kMemGeneric, params.getHandle(), handle_pointer(handle), 0);
    if (added != CUDA_SUCCESS) {
      worker.driver().cuMemRelease(handle);
      return refused_id(worker, request, "cuMemRetainAllocationHandle", added);
    }
    worker.parts().memory.retained(handle, params.getAddr());
    return answer(worker, request, CUDA_SUCCESS);
  });
}

}  // namespace fargpu::server

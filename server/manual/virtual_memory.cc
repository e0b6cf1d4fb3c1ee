// Physical memory behind virtual mappings: charged until its last handle and its last mapping are
// gone; in the tiles of sparse arrays, while a tile lies in it.
#include <iterator>

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

namespace {

using rpc::HandleKind;

struct Target {
  uint64_t id = 0;
  ArrayMappings::TileExtent tile{};
};

// Ids become the driver's handles. `target`: the array that is meant.
CUresult resolve(Worker& worker, CUarrayMapInfo* info, Target* target) {
  const DriverTable& driver = worker.driver();
  CUDA_ARRAY_SPARSE_PROPERTIES properties{};
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  if (info->resourceType == CU_RESOURCE_TYPE_ARRAY) {
    target->id = handle_id(info->resource.array);
    result = find_handle(worker, HandleKind::kArray, target->id, &info->resource.array);
    if (result != CUDA_SUCCESS) return result;
    result = driver.cuArrayGetSparseProperties(&properties, info->resource.array);
  } else if (info->resourceType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY) {
    target->id = handle_id(info->resource.mipmap);
    result = find_handle(worker, HandleKind::kMipmappedArray, target->id, &info->resource.mipmap);
    if (result != CUDA_SUCCESS) return result;
    result = driver.cuMipmappedArrayGetSparseProperties(&properties, info->resource.mipmap);
  }
  if (result != CUDA_SUCCESS) return result;
  target->tile = properties.tileExtent;
  const uint64_t memory = info->memHandle.memHandle;
  if (info->memOperationType != CU_MEM_OPERATION_TYPE_MAP || memory == 0) return CUDA_SUCCESS;
  return find_handle(worker, HandleKind::kMemGeneric, memory, &info->memHandle.memHandle);
}

}  // namespace

Status manual_cuMemMapArrayAsync(Worker& worker, const Request& request) {
  return decode_cuMemMapArrayAsync(worker, request, [&](const auto& given) -> Status {
    FARGPU_NEEDS_DRIVER(cuArrayGetSparseProperties);
    FARGPU_NEEDS_DRIVER(cuMipmappedArrayGetSparseProperties);
    std::vector<CUarrayMapInfo> infos(given.mapInfoList.data(),
                                      given.mapInfoList.data() + given.count);
    std::vector<Target> targets(infos.size());
    for (size_t i = 0; i < infos.size(); ++i)
      FARGPU_ANSWER_UNLESS_SUCCESS(resolve(worker, &infos[i], &targets[i]));
    FARGPU_ANSWER_UNLESS_SUCCESS(
        worker.driver().cuMemMapArrayAsync(infos.data(), given.count, given.hStream));
    MemoryAccount& memory = worker.parts().memory;
    ArrayMappings::Gone gone;
    for (size_t i = 0; i < infos.size(); ++i) {
      auto each = memory.array_mappings().changed(targets[i].id, targets[i].tile, infos[i]);
      gone.insert(gone.end(), std::move_iterator(each.begin()), std::move_iterator(each.end()));
    }
    if (!gone.empty()) {
      const FrameStream& stream = given.submission.stream();
      if (worker.parts().contexts.enter(stream.context) != CUDA_SUCCESS)
        memory.end_use(gone);
      else
        worker.parts().completion.when(
            UntilPassed{stream.context, stream.handle},
            [&memory, gone = std::move(gone)](CUresult) { memory.end_use(gone); });
    }
    return answer(worker, request, CUDA_SUCCESS);
  });
}

}  // namespace fargpu::server

// Memory in the tiles of sparse arrays. It stays charged while a tile lies in it.
#include <iterator>

#include "generated/server/virtual_memory_decode.h"
#include "server/manual/manual.h"

namespace fargpu::server {
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

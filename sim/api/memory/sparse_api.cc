// Mapping memory into sparse arrays.
#include <vector>

#include "sim/driver/physical_memory.h"
#include "sim/object/api.h"
#include "sim/object/array.h"

using namespace fargpu::sim;

namespace {

struct SparseWork {
  std::shared_ptr<SparseArray> array;
  SparseArray::Change change;
};

std::shared_ptr<SparseArray> find_sparse(const CUarrayMapInfo& info) {
  const Registry& registry = Driver::get().registry();
  if (info.resourceType == CU_RESOURCE_TYPE_ARRAY) {
    const auto array = registry.find<Array>(info.resource.array);
    return array && !array->is_part() ? array->sparse() : nullptr;
  }
  if (info.resourceType != CU_RESOURCE_TYPE_MIPMAPPED_ARRAY) return nullptr;
  const auto array = registry.find<MipmappedArray>(info.resource.mipmap);
  return array ? array->sparse() : nullptr;
}

CUresult check(const Context& context, const CUarrayMapInfo& info, SparseWork* work) {
  const unsigned device = static_cast<unsigned>(context.device().ordinal());
  if (info.flags != 0 || info.reserved[0] != 0 || info.reserved[1] != 0 ||
      info.deviceBitMask != 1u << device || info.memHandleType != CU_MEM_HANDLE_TYPE_GENERIC)
    return CUDA_ERROR_INVALID_VALUE;
  work->array = find_sparse(info);
  if (work->array == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<PhysicalMemory> memory;
  if (info.memOperationType == CU_MEM_OPERATION_TYPE_MAP) {
    memory = Driver::get().registry().find<PhysicalMemory>(info.memHandle.memHandle);
    if (!memory || memory->properties().allocFlags.usage != CU_MEM_CREATE_USAGE_TILE_POOL)
      return CUDA_ERROR_INVALID_VALUE;
  } else if (info.memOperationType != CU_MEM_OPERATION_TYPE_UNMAP) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return work->array->check(info, std::move(memory), &work->change);
}

}  // namespace

CUresult CUDAAPI cuMemMapArrayAsync(CUarrayMapInfo* mapInfoList, unsigned int count,
                                    CUstream hStream) {
  return with_stream(hStream, [&](Context& context, const auto& stream) -> CUresult {
    if (mapInfoList == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
    std::vector<SparseWork> works(count);
    for (unsigned i = 0; i < count; ++i) {
      if (CUresult result = check(context, mapInfoList[i], &works[i]); result != CUDA_SUCCESS)
        return result;
    }
    context.submit_to_device(stream, [works = std::move(works)] {
      for (const SparseWork& work : works) work.array->apply(work.change);
    });
    return CUDA_SUCCESS;
  });
}

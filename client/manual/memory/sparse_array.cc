// Memory in the tiles of sparse arrays. What is mapped where is not known here: no address leads
// there.
#include <algorithm>
#include <bit>
#include <vector>

#include "client/manual/common.h"

namespace fargpu::client {
namespace {

using rpc::HandleKind;

// Handles become ids, the client's device the server's.
CUresult translate(Session& session, CUarrayMapInfo* info) {
  if (std::popcount(info->deviceBitMask) != 1) return CUDA_ERROR_INVALID_VALUE;
  int32_t ordinal = 0;
  const CUresult known = device_to_wire(session, std::countr_zero(info->deviceBitMask), &ordinal);
  if (known != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  info->deviceBitMask = 1u << static_cast<unsigned>(ordinal);
  const bool is_array = info->resourceType == CU_RESOURCE_TYPE_ARRAY;
  if (!is_array && info->resourceType != CU_RESOURCE_TYPE_MIPMAPPED_ARRAY)
    return CUDA_ERROR_INVALID_VALUE;
  uint64_t id = 0;
  const CUresult result =
      handle_to_wire(session, is_array ? HandleKind::kArray : HandleKind::kMipmappedArray,
                     info->resource.array, &id);
  if (result != CUDA_SUCCESS || id == 0) return CUDA_ERROR_INVALID_VALUE;
  info->resource.array = reinterpret_cast<CUarray>(id);
  if (info->memOperationType != CU_MEM_OPERATION_TYPE_MAP) {
    info->memHandle.memHandle = 0;
    return CUDA_SUCCESS;
  }
  const auto memory = reinterpret_cast<const void*>(info->memHandle.memHandle);
  if (handle_to_wire(session, HandleKind::kMemGeneric, memory, &id) != CUDA_SUCCESS || id == 0)
    return CUDA_ERROR_INVALID_VALUE;
  info->memHandle.memHandle = id;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult manual_cuMemMapArrayAsync(CUarrayMapInfo* mapInfoList, unsigned int count,
                                   CUstream hStream) {
  constexpr unsigned kMostInMessage = 2048;
  if (mapInfoList == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  const CallTarget target = CallTarget::of(hStream);
  std::vector<CUarrayMapInfo> infos(mapInfoList, mapInfoList + count);
  for (CUarrayMapInfo& info : infos) {
    if (const CUresult result = translate(target.session, &info); result != CUDA_SUCCESS)
      return result;
  }
  for (unsigned done = 0; done < count;) {
    const unsigned now = std::min(count - done, kMostInMessage);
    const CUresult result =
        call_cuMemMapArrayAsync(target.session, target.context, infos.data() + done, now, hStream);
    if (result != CUDA_SUCCESS) return result;
    done += now;
  }
  return CUDA_SUCCESS;
}

}  // namespace fargpu::client

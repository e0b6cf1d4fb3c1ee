// What a pointer is: answered from the tables of device and host memory.
#include <cstring>

#include "client/manual/common.h"

namespace fargpu::client {
namespace {

struct Found {
  Region region;
  bool host = false;
};

std::optional<Found> find(Session& session, CUdeviceptr ptr) {
  if (auto region = session.device_memory.find(ptr)) return Found{*region, false};
  if (auto region = session.host_memory.find(ptr)) return Found{*region, true};
  return std::nullopt;
}

template <typename T>
void put(void* data, T value) {
  // NOLINTNEXTLINE(bugprone-sizeof-expression): a value may be a pointer
  std::memcpy(data, &value, sizeof value);
}

// The range of mapped memory is that of its addresses, as they were reserved.
void put_range(Session& session, CUdeviceptr ptr, const Region& region,
               CUpointer_attribute attribute, void* data) {
  const auto reserved = session.reservations.find(ptr);
  const Region& range = reserved ? *reserved : region;
  put<uint64_t>(data, attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE ? range.bytes : range.base);
}

CUresult pool_of(const Region& region, void* data) {
  CUmemoryPool pool = nullptr;
  if (region.kind == MemoryKind::kPool) {
    pool = reinterpret_cast<CUmemoryPool>(region.owner);
    if (pool == nullptr) {
      const CUresult result = manual_cuDeviceGetDefaultMemPool(&pool, region.device);
      if (result != CUDA_SUCCESS) return result;
    }
  }
  put(data, pool);
  return CUDA_SUCCESS;
}

// CUDA_ERROR_INVALID_VALUE: this attribute says nothing about such memory.
CUresult answer(Session& session, const Found& found, CUdeviceptr ptr,
                CUpointer_attribute attribute, void* data) {
  const Region& region = found.region;
  const bool managed = region.kind == MemoryKind::kManaged;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      // Memory of a pool or of virtual memory management belongs to no context.
      if (region.kind == MemoryKind::kPool || region.kind == MemoryKind::kVirtual) {
        put<CUcontext>(data, nullptr);
        return CUDA_SUCCESS;
      }
      put(data, region.context == nullptr ? nullptr : region.context->handle());
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      put<unsigned>(data, found.host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      if (found.host) {
        if (region.shared_at != 0) {
          put<CUdeviceptr>(data, region.shared_at + (ptr - region.base));
          return CUDA_SUCCESS;
        }
        const auto mapped = session.pages.device_pointer(region.base);
        put<CUdeviceptr>(data, mapped ? *mapped + (ptr - region.base) : ptr);
        return CUDA_SUCCESS;
      }
      put<CUdeviceptr>(data, ptr);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!found.host && !managed) {
        put<void*>(data, nullptr);
        return CUDA_ERROR_INVALID_VALUE;
      }
      put(data, reinterpret_cast<void*>(ptr));
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      put<int>(data, region.sync_memops.value_or(!found.host) ? 1 : 0);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      put<unsigned long long>(data, region.buffer_id);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      put<int>(data, managed ? 1 : 0);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      put<int>(data, region.device);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      put<int>(data, region.kind == MemoryKind::kDevice && !region.of_graph && region.opened == 0);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      put<int>(data, 0);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      put_range(session, ptr, region, attribute, data);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      put<CUdeviceptr>(data, region.base);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      put<size_t>(data, region.bytes);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
      put<int>(data, 1);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      put<unsigned long long>(data, static_cast<unsigned>(region.handle_types));
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      put<unsigned>(data, region.read_only() ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ
                                             : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return pool_of(region, data);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// What cuPointerGetAttributes gives for an address that it does not know.
// CUDA_ERROR_INVALID_VALUE: there is no such attribute.
CUresult answer_unknown(Session& session, CUdeviceptr ptr, CUpointer_attribute attribute,
                        void* data) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      put<int>(data, -2);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      put<unsigned>(data, 0);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
      put<int>(data, 0);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      put<uint64_t>(data, session.device_memory.find(ptr) ? 0 : ptr);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      put_range(session, ptr, Region{}, attribute, data);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      put<uint64_t>(data, 0);
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

CUresult manual_cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto found = find(CallTarget::of_current().session, ptr);
  Session& session = found ? *found->region.session : CallTarget::of_current().session;
  return found ? answer(session, *found, ptr, attribute, data) : CUDA_ERROR_INVALID_VALUE;
}

CUresult manual_cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute* attributes,
                                       void** data, CUdeviceptr ptr) {
  if (numAttributes == 0 || attributes == nullptr || data == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  const auto found = find(CallTarget::of_current().session, ptr);
  Session& session = found ? *found->region.session : CallTarget::of_current().session;
  for (unsigned i = 0; i < numAttributes; ++i) {
    if (data[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (attributes[i] == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) {
      // Together with others it is told only when it was set, but for managed memory.
      const bool managed = found && found->region.kind == MemoryKind::kManaged;
      put<int>(data[i], found && found->region.sync_memops.value_or(managed) ? 1 : 0);
      continue;
    }
    if (found && answer(session, *found, ptr, attributes[i], data[i]) == CUDA_SUCCESS) continue;
    const CUresult result = answer_unknown(session, ptr, attributes[i], data[i]);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult manual_cuPointerSetAttribute(const void* value, CUpointer_attribute attribute,
                                      CUdeviceptr ptr) {
  if (value == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
    return CUDA_ERROR_INVALID_VALUE;
  const CallTarget target = CallTarget::of_memory(ptr);
  unsigned on = 0;
  std::memcpy(&on, value, sizeof on);
  const auto remember = [on](Region& region) { region.sync_memops = on != 0; };
  // Host memory is this process's: there is nothing to tell the worker.
  if (target.session.host_memory.change(ptr, remember)) return CUDA_SUCCESS;
  // Managed memory is mapped at the server, where a driver does not take the attribute.
  const auto region = target.session.device_memory.find(ptr);
  if (region && region->kind == MemoryKind::kManaged) {
    target.session.device_memory.change(ptr, remember);
    return CUDA_SUCCESS;
  }
  const CUresult result =
      wire::cuPointerSetAttribute(target.session, target.context, value, attribute, ptr);
  if (result == CUDA_SUCCESS) target.session.device_memory.change(ptr, remember);
  return result;
}

}  // namespace fargpu::client

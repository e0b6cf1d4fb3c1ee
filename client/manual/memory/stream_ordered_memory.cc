// Memory pools: each device's default pool and current pool are remembered, so that asking twice
// gives the same handle.
#include "client/manual/common.h"
#include "client/memory/memory_source.h"
#include "client/process/process.h"

namespace fargpu::client {
namespace {

CUresult find(CUdevice dev, Session** session) {
  *session = Process::get().session_of_device(dev);
  return *session == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

// The pool's memory lies on `device`.
void remember_device(Session& session, CUmemoryPool pool, int device,
                     int handle_types = CU_MEM_HANDLE_TYPE_NONE) {
  auto* source = static_cast<MemorySource*>(
      session.find(rpc::HandleKind::kMemPool, reinterpret_cast<uint64_t>(pool)));
  if (source == nullptr) return;
  source->device.store(device, std::memory_order_relaxed);
  source->handle_types.store(handle_types, std::memory_order_relaxed);
}

// Pools of pinned memory of a device: the only ones there are.
CUresult check(const CUmemLocation* location, CUmemAllocationType type) {
  if (location == nullptr || type < CU_MEM_ALLOCATION_TYPE_PINNED ||
      type > CU_MEM_ALLOCATION_TYPE_MANAGED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || type != CU_MEM_ALLOCATION_TYPE_PINNED) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult manual_cuDeviceGetDefaultMemPool(CUmemoryPool* pool_out, CUdevice dev) {
  if (pool_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Session* session = nullptr;
  if (const CUresult result = find(dev, &session); result != CUDA_SUCCESS) return result;
  std::lock_guard lock(session->pools_mutex);
  uint64_t& pool = session->pools[dev].default_pool;
  if (pool == 0) {
    CUmemoryPool made = nullptr;
    const CallTarget target = CallTarget::of_device(dev);
    const CUresult result =
        call_cuDeviceGetDefaultMemPool(target.session, target.context, &made, dev);
    if (result != CUDA_SUCCESS) return result;
    remember_device(*session, made, dev);
    pool = reinterpret_cast<uint64_t>(made);
  }
  *pool_out = reinterpret_cast<CUmemoryPool>(pool);
  return CUDA_SUCCESS;
}

CUresult manual_cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* poolProps) {
  if (poolProps == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CallTarget target = CallTarget::of_location(&poolProps->location);
  const CUresult result = call_cuMemPoolCreate(target.session, target.context, pool, poolProps);
  if (result == CUDA_SUCCESS)
    remember_device(target.session, *pool, poolProps->location.id, poolProps->handleTypes);
  return result;
}

CUresult manual_cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice dev) {
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Session* session = nullptr;
  if (find(dev, &session) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  {
    std::lock_guard lock(session->pools_mutex);
    const uint64_t current = session->pools[dev].current_pool;
    // A destroyed pool gives way to the default one.
    if (current != 0 && session->find(rpc::HandleKind::kMemPool, current) != nullptr) {
      *pool = reinterpret_cast<CUmemoryPool>(current);
      return CUDA_SUCCESS;
    }
  }
  return manual_cuDeviceGetDefaultMemPool(pool, dev);
}

CUresult manual_cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
  Session* session = nullptr;
  if (find(dev, &session) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  const auto* const source = static_cast<MemorySource*>(
      session->find(rpc::HandleKind::kMemPool, reinterpret_cast<uint64_t>(pool)));
  if (source != nullptr && source->is_import) return CUDA_ERROR_INVALID_VALUE;
  const CallTarget target = CallTarget::of_device(dev);
  const CUresult result = call_cuDeviceSetMemPool(target.session, target.context, dev, pool);
  if (result != CUDA_SUCCESS) return result;
  std::lock_guard lock(session->pools_mutex);
  session->pools[dev].current_pool = reinterpret_cast<uint64_t>(pool);
  return CUDA_SUCCESS;
}

CUresult manual_cuMemGetDefaultMemPool(CUmemoryPool* pool_out, CUmemLocation* location,
                                       CUmemAllocationType type) {
  if (const CUresult result = check(location, type); result != CUDA_SUCCESS) return result;
  return manual_cuDeviceGetDefaultMemPool(pool_out, location->id);
}

CUresult manual_cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location,
                                CUmemAllocationType type) {
  if (const CUresult result = check(location, type); result != CUDA_SUCCESS) return result;
  return manual_cuDeviceGetMemPool(pool, location->id);
}

CUresult manual_cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type,
                                CUmemoryPool pool) {
  if (const CUresult result = check(location, type); result != CUDA_SUCCESS) return result;
  return manual_cuDeviceSetMemPool(location->id, pool);
}

}  // namespace fargpu::client

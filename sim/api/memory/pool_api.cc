// Memory pools and stream-ordered allocation.
#include "sim/context/capture.h"
#include "sim/driver/pool.h"
#include "sim/object/api.h"

using namespace fargpu::sim;

namespace {

CUmemoryPool handle_of(const Pool& pool) { return to_handle<CUmemoryPool>(pool.handle()); }

// The memory may be used from the place of the call in the stream on; here it exists at once.
CUresult allocate(Context& context, const std::shared_ptr<Stream>& stream,
                  const std::shared_ptr<Pool>& pool, CUdeviceptr* dptr, size_t bytes) {
  if (dptr == nullptr || pool->is_import()) return CUDA_ERROR_INVALID_VALUE;
  if (bytes == 0) {
    *dptr = 0;
    return CUDA_SUCCESS;
  }
  const auto captured = if_captured(context, stream, [&](Capture& capture) {
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    params.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.alloc.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, pool->device().ordinal()};
    params.alloc.bytesize = bytes;
    const CUresult result = capture.add(*stream, params, {});
    if (result == CUDA_SUCCESS) *dptr = params.alloc.dptr;
    return result;
  });
  if (captured) return *captured;
  uint64_t address = pool->allocate(bytes);
  if (address == 0) {
    // What streams are about to free counts: wait for it and try again.
    for (const Fence& fence : context.outstanding()) fence->wait();
    address = pool->allocate(bytes);
  }
  if (address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  Allocation allocation = owned_by(context);
  allocation.base = address;
  allocation.bytes = bytes;
  allocation.device = pool->device().ordinal();
  allocation.context = 0;  // pool memory outlives contexts
  allocation.pool = pool->handle();
  allocation.readable = allocation.writable = pool->access_mask();
  Driver::get().allocations().insert(allocation);
  *dptr = address;
  return CUDA_SUCCESS;
}

// CUDA_ERROR_NOT_SUPPORTED: memory of the host, or for other processes by other handles.
CUresult check_properties(Driver& driver, const CUmemPoolProps* props) {
  if (props == nullptr || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
    return CUDA_ERROR_INVALID_VALUE;
  const auto types = static_cast<unsigned>(props->handleTypes);
  if ((types & ~(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if ((types & CU_MEM_HANDLE_TYPE_FABRIC) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (props->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return props->location.type == CU_MEM_LOCATION_TYPE_INVALID ? CUDA_ERROR_INVALID_VALUE
                                                                : CUDA_ERROR_NOT_SUPPORTED;
  }
  return driver.device(props->location.id) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult CUDAAPI cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  return with_stream(hStream, [&](Context& context, const std::shared_ptr<Stream>& stream) {
    return allocate(context, stream, context.device().current_pool(), dptr, bytesize);
  });
}

CUresult CUDAAPI cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                         CUstream hStream) {
  return with_stream(
      hStream, [&](Context& context, const std::shared_ptr<Stream>& stream) -> CUresult {
        auto found = find_pool(Driver::get(), pool);
        return found ? allocate(context, stream, found, dptr, bytesize) : CUDA_ERROR_INVALID_VALUE;
      });
}

CUresult CUDAAPI cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
  return with_stream(
      hStream, [&](Context& context, const std::shared_ptr<Stream>& stream) -> CUresult {
        if (dptr == 0) return CUDA_SUCCESS;
        const auto captured = capture_node(context, stream, CU_GRAPH_NODE_TYPE_MEM_FREE,
                                           [&](auto& params) { params.free.dptr = dptr; });
        if (captured) return *captured;
        AllocationMap& allocations = Driver::get().allocations();
        if (const auto found = allocations.find(dptr); found && found->graph) {
          const auto block = Driver::get().device(found->device)->graph_memory().find(found->base);
          if (found->base != dptr || !block || !block->owner.claim_free(*block))
            return CUDA_ERROR_INVALID_VALUE;
          context.submit(stream, [block] { block->owner.end(*block); });
          return CUDA_SUCCESS;
        }
        if (const auto found = allocations.find(dptr);
            found && found->kind == Allocation::Kind::kManaged)
          return CUDA_ERROR_NOT_SUPPORTED;
        bool claimed = false;
        allocations.for_range(dptr, 1, [&](Allocation& allocation) {
          claimed = allocation.base == dptr && allocation.kind == Allocation::Kind::kDevice &&
                    !allocation.freeing && (!allocation.opened || allocation.pool != 0);
          if (claimed) allocation.freeing = true;
          return claimed;
        });
        if (!claimed) return CUDA_ERROR_INVALID_VALUE;
        context.submit(stream, [dptr] {
          Driver& driver = Driver::get();
          if (auto allocation = driver.allocations().erase(dptr)) driver.release(*allocation);
        });
        return CUDA_SUCCESS;
      });
}

CUresult CUDAAPI cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* poolProps) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult result = check_properties(driver, poolProps); result != CUDA_SUCCESS)
      return result;
    auto made =
        std::make_shared<Pool>(*driver.device(poolProps->location.id), false, poolProps->maxSize);
    if (poolProps->handleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
      auto shared = SharedPool::create(made->device().index());
      if (!shared.ok()) return CUDA_ERROR_OPERATING_SYSTEM;
      made->share(std::move(*shared), false);
    }
    made->set_handle(driver.registry().add(made, 0));
    *pool = handle_of(*made);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemPoolDestroy(CUmemoryPool handle) {
  return with_driver([&](Driver& driver) -> CUresult {
    auto pool = find_pool(driver, handle);
    if (!pool || pool->is_default()) return CUDA_ERROR_INVALID_VALUE;
    if (pool->is_import()) {
      bool has_memory = false;
      driver.allocations().for_pool(pool->handle(), [&](Allocation&) { has_memory = true; });
      if (has_memory) return CUDA_ERROR_INVALID_VALUE;
    }
    if (pool->device().current_pool() == pool)
      pool->device().set_current_pool(pool->device().default_pool());
    if (pool->retire()) driver.registry().remove<Pool>(handle);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemPoolTrimTo(CUmemoryPool handle, size_t minBytesToKeep) {
  return with_driver([&](Driver& driver) -> CUresult {
    auto pool = find_pool(driver, handle);
    if (!pool || pool->is_import()) return CUDA_ERROR_INVALID_VALUE;
    pool->trim(minBytesToKeep);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attr, void* value) {
  return with_driver([&](Driver& driver) -> CUresult {
    auto pool = find_pool(driver, handle);
    return pool && !pool->is_import() && value != nullptr ? pool->set(attr, value)
                                                          : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult CUDAAPI cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attr, void* value) {
  return with_driver([&](Driver& driver) -> CUresult {
    auto pool = find_pool(driver, handle);
    return pool && !pool->is_import() && value != nullptr ? pool->get(attr, value)
                                                          : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult CUDAAPI cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* map, size_t count) {
  return with_driver([&](Driver& driver) -> CUresult {
    auto pool = find_pool(driver, handle);
    if (!pool || map == nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; ++i) {
      if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
      if (driver.device(map[i].location.id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
      if (map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ) return CUDA_ERROR_NOT_SUPPORTED;
      if (map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
          map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      const bool own = map[i].location.id == pool->device().ordinal();
      if (own && map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) return CUDA_ERROR_INVALID_DEVICE;
    }
    for (size_t i = 0; i < count; ++i) pool->set_access(map[i].location.id, map[i].flags);
    driver.allocations().for_pool(pool->handle(),
                                  [mask = pool->access_mask()](Allocation& allocation) {
                                    allocation.readable = allocation.writable = mask;
                                  });
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool memPool,
                                    CUmemLocation* location) {
  return with_driver([&](Driver& driver) -> CUresult {
    auto pool = find_pool(driver, memPool);
    if (!pool || flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (location->type == CU_MEM_LOCATION_TYPE_HOST ||
        location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA) {
      *flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
      return CUDA_SUCCESS;
    }
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    if (driver.device(location->id) == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = pool->access(location->id);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetDefaultMemPool(CUmemoryPool* pool_out, CUdevice dev) {
  return with_device(dev, [&](Device& device) -> CUresult {
    if (pool_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pool_out = handle_of(*device.default_pool());
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice dev) {
  // Unlike elsewhere, the ordinal of no device is called a wrong value.
  if (Driver::initialized() && Driver::get().device(dev) == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  return with_device(dev, [&](Device& device) -> CUresult {
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pool = handle_of(*device.current_pool());
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceSetMemPool(CUdevice dev, CUmemoryPool handle) {
  // Unlike elsewhere, the ordinal of no device is called a wrong value.
  if (Driver::initialized() && Driver::get().device(dev) == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  return with_device(dev, [&](Device& device) -> CUresult {
    auto pool = find_pool(Driver::get(), handle);
    if (!pool || pool->is_import() || &pool->device() != &device) return CUDA_ERROR_INVALID_VALUE;
    device.set_current_pool(std::move(pool));
    return CUDA_SUCCESS;
  });
}

namespace {

CUresult check_location(const CUmemLocation* location, CUmemAllocationType type) {
  if (location == nullptr || type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  return location->type == CU_MEM_LOCATION_TYPE_DEVICE ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace

CUresult CUDAAPI cuMemGetDefaultMemPool(CUmemoryPool* pool_out, CUmemLocation* location,
                                        CUmemAllocationType type) {
  const CUresult result = check_location(location, type);
  return result == CUDA_SUCCESS ? cuDeviceGetDefaultMemPool(pool_out, location->id) : result;
}

CUresult CUDAAPI cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location,
                                 CUmemAllocationType type) {
  const CUresult result = check_location(location, type);
  return result == CUDA_SUCCESS ? cuDeviceGetMemPool(pool, location->id) : result;
}

CUresult CUDAAPI cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type,
                                 CUmemoryPool pool) {
  const CUresult result = check_location(location, type);
  return result == CUDA_SUCCESS ? cuDeviceSetMemPool(location->id, pool) : result;
}

// Memory pools that several processes have.
#include "sim/driver/interprocess.h"
#include "sim/driver/pool.h"
#include "sim/memory/shared_file.h"
#include "sim/object/api.h"

using namespace fargpu::sim;

CUresult CUDAAPI cuMemPoolExportToShareableHandle(void* handle_out, CUmemoryPool pool,
                                                  CUmemAllocationHandleType handleType,
                                                  unsigned long long flags) {
  return with_driver([&](Driver& driver) -> CUresult {
    const auto found = find_pool(driver, pool);
    if (handle_out == nullptr || !found || !found->shared() || found->is_import() || flags != 0 ||
        handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
      return CUDA_ERROR_INVALID_VALUE;
    const int descriptor = found->shared()->duplicate();
    if (descriptor < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    found->export_memory();
    *static_cast<int*>(handle_out) = descriptor;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemPoolImportFromShareableHandle(CUmemoryPool* pool_out, void* handle,
                                                    CUmemAllocationHandleType handleType,
                                                    unsigned long long flags) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (pool_out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
      return handleType == CU_MEM_HANDLE_TYPE_WIN32 ? CUDA_ERROR_NOT_SUPPORTED
                                                    : CUDA_ERROR_INVALID_VALUE;
    }
    const auto descriptor = static_cast<int>(reinterpret_cast<intptr_t>(handle));
    auto shared = SharedPool::open(descriptor);
    if (!shared.ok()) {
      const bool is_memory = SharedFile::open(descriptor).ok();
      return is_memory ? CUDA_ERROR_NOT_SUPPORTED : no_export(descriptor);
    }
    if (const auto known = driver.interprocess().imported_pool(shared->key())) {
      *pool_out = to_handle<CUmemoryPool>(known->handle());
      return CUDA_SUCCESS;
    }
    for (const auto& device : driver.devices()) {
      if (device->index() != shared->index()) continue;
      const auto pool = std::make_shared<Pool>(*device, false);
      pool->share(std::move(*shared), true);
      pool->set_handle(driver.registry().add(pool, 0));
      driver.interprocess().enter_imported(pool);
      *pool_out = to_handle<CUmemoryPool>(pool->handle());
      return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_DEVICE;
  });
}

CUresult CUDAAPI cuMemPoolExportPointer(CUmemPoolPtrExportData* shareData_out, CUdeviceptr ptr) {
  return with_driver([&](Driver& driver) -> CUresult {
    const auto found = driver.allocations().find(ptr);
    if (shareData_out == nullptr || !found || found->base != ptr ||
        found->kind != Allocation::Kind::kDevice || found->pool == 0 || found->freeing ||
        found->opened)
      return CUDA_ERROR_INVALID_VALUE;
    const auto pool = driver.registry().find<Pool>(found->pool);
    if (!pool || !pool->is_exported()) return CUDA_ERROR_INVALID_VALUE;
    return driver.interprocess().export_pointer(*found, *pool, shareData_out);
  });
}

CUresult CUDAAPI cuMemPoolImportPointer(CUdeviceptr* ptr_out, CUmemoryPool pool,
                                        CUmemPoolPtrExportData* shareData) {
  return with_driver([&](Driver& driver) -> CUresult {
    const auto found = find_pool(driver, pool);
    if (ptr_out == nullptr || shareData == nullptr || !found || !found->is_import())
      return CUDA_ERROR_INVALID_VALUE;
    return driver.interprocess().import_pointer(*found, *shareData, ptr_out);
  });
}

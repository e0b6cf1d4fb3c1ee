// Pools that processes of one job give each other, and memory of them. The program passes on
// export handles of the server's; the driver's descriptors and data go from worker to worker.
#include <map>
#include <mutex>

#include "client/manual/apart.h"
#include "client/manual/memory/handle_file.h"
#include "client/manual/memory/sharing.h"
#include "client/memory/memory_source.h"
#include "client/memory/reserve.h"
#include "common/base/log.h"

namespace fargpu::client {
namespace {

MemorySource* find_pool(Session& session, CUmemoryPool pool) {
  return static_cast<MemorySource*>(
      session.find(rpc::HandleKind::kMemPool, reinterpret_cast<uint64_t>(pool)));
}

// The pools that this process has imported: a pool has one handle, however often it is imported.
class ImportedPools {
 public:
  // nullptr: it is not there, or it was destroyed.
  CUmemoryPool find(const Session& session, const ExportHandleBytes& export_handle) {
    const auto found = pools_.find(export_handle);
    return found != pools_.end() && lives(session, found->second) ? found->second.pool : nullptr;
  }
  void enter(const Session& session, const ExportHandleBytes& export_handle, CUmemoryPool pool) {
    std::erase_if(pools_, [&](const auto& each) {
      return each.second.session == &session && !lives(session, each.second);
    });
    pools_[export_handle] = {&session, pool};
  }
  std::mutex& mutex() { return mutex_; }

 private:
  struct KnownPool {
    const Session* session;
    CUmemoryPool pool;
  };
  // Ids are not used again.
  static bool lives(const Session& session, const KnownPool& pool) {
    return pool.session == &session &&
           session.find(rpc::HandleKind::kMemPool, reinterpret_cast<uint64_t>(pool.pool)) !=
               nullptr;
  }
  std::mutex mutex_;
  std::map<ExportHandleBytes, KnownPool> pools_;
};

ImportedPools& imported_pools() {
  static auto* const pools = new ImportedPools;
  return *pools;
}

CUresult check_import(const CUmemoryPool* pool, CUmemAllocationHandleType type,
                      unsigned long long flags) {
  if (pool == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (type == CU_MEM_HANDLE_TYPE_WIN32) return CUDA_ERROR_NOT_SUPPORTED;
  return type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult manual_cuMemPoolExportToShareableHandle(void* handle_out, CUmemoryPool pool,
                                                 CUmemAllocationHandleType handleType,
                                                 unsigned long long flags) {
  if (handle_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CallTarget target = CallTarget::of(pool);
  ExportHandleBytes export_handle{};
  const CUresult result = call_cuMemPoolExportToShareableHandle(
      target.session, target.context, export_handle.data(), pool, handleType, flags);
  if (result != CUDA_SUCCESS) return result;
  return give_handle_file("cuMemPoolExportToShareableHandle", export_handle, /*inherited=*/true,
                          static_cast<int*>(handle_out));
}

CUresult manual_cuMemPoolImportFromShareableHandle(CUmemoryPool* pool_out, void* handle,
                                                   CUmemAllocationHandleType handleType,
                                                   unsigned long long flags) {
  if (const CUresult result = check_import(pool_out, handleType, flags); result != CUDA_SUCCESS)
    return result;
  ExportHandleBytes export_handle{};
  const auto descriptor = static_cast<int>(reinterpret_cast<intptr_t>(handle));
  if (const CUresult result = read_handle_file(descriptor, &export_handle); result != CUDA_SUCCESS)
    return result;
  constexpr const char* kName = "cuMemPoolImportFromShareableHandle";
  const std::lock_guard lock(imported_pools().mutex());
  return at_its_server(kName, [&](Session& session, uint16_t context) -> CUresult {
    CUmemoryPool pool = imported_pools().find(session, export_handle);
    if (pool != nullptr) {
      *pool_out = pool;
      return CUDA_SUCCESS;
    }
    int device = 0;
    const CUresult result =
        call_fgPoolImport(session, context, export_handle.data(), &pool, &device);
    if (result != CUDA_SUCCESS) return result;
    device = device_from_wire(session, device);
    if (device == CU_DEVICE_INVALID) {
      (void)call_cuMemPoolDestroy(session, context, pool);
      return refuse_hidden_device(kName);
    }
    if (auto* const source = find_pool(session, pool)) {
      source->device = device;
      source->is_import = true;
    }
    imported_pools().enter(session, export_handle, pool);
    *pool_out = pool;
    return CUDA_SUCCESS;
  });
}

CUresult manual_cuMemPoolExportPointer(CUmemPoolPtrExportData* shareData_out, CUdeviceptr ptr) {
  if (shareData_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CallTarget target = CallTarget::of_memory(ptr);
  return sharing(target.session, [&] {
    return wire::cuMemPoolExportPointer(target.session, target.context, shareData_out, ptr);
  });
}

CUresult manual_cuMemPoolImportPointer(CUdeviceptr* ptr_out, CUmemoryPool pool,
                                       CUmemPoolPtrExportData* shareData) {
  if (ptr_out == nullptr || shareData == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CallTarget target = CallTarget::of(pool);
  Session& session = target.session;
  const MemorySource* const source = find_pool(session, pool);
  if (source == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Region region{.kind = MemoryKind::kPool,
                .session = &session,
                .device = source->device.load(std::memory_order_relaxed),
                .owner = reinterpret_cast<uint64_t>(pool)};
  CUdeviceptr address = 0;
  size_t bytes = 0;
  const CUresult result = sharing(session, [&] {
    return call_fgPoolImportMemory(session, target.context, pool, shareData, &address, &bytes);
  });
  if (result != CUDA_SUCCESS) return result;
  region.base = address;
  region.bytes = bytes;
  if (taken_by_other(session, region.base, region.bytes)) {
    (void)call_cuMemFree_v2(session, target.context, region.base);
    return refuse_address(session, "cuMemPoolImportPointer", region.base);
  }
  *ptr_out = region.base;
  region.buffer_id = session.next_buffer_id();
  region.reserved = reserve_addresses(region.base, region.bytes);
  if (!session.device_memory.insert(region) && region.reserved)
    release_reserved(region.base, region.bytes);
  return CUDA_SUCCESS;
}

}  // namespace fargpu::client

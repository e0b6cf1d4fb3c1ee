// Page-locked host memory: allocated here or registered; kernels use it at the same address.
#include <sys/mman.h>

#include "common/host/mapped_memory.h"
#include "sim/object/api.h"

using namespace fargpu::sim;

namespace {

constexpr unsigned kAllocFlags =
    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
constexpr unsigned kRegisterFlags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                                    CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
constexpr size_t kPage = 4096;

}  // namespace

CUresult CUDAAPI cuMemHostAlloc(void** pp, size_t bytesize, unsigned int Flags) {
  return with_context([&](Context& context) -> CUresult {
    if (pp == nullptr || (Flags & ~kAllocFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
    if (bytesize == 0) {
      *pp = nullptr;
      return CUDA_SUCCESS;
    }
    if (bytesize > SIZE_MAX - kPage) return CUDA_ERROR_OUT_OF_MEMORY;
    void* memory = mmap(nullptr, (bytesize + kPage - 1) / kPage * kPage, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    Allocation allocation = owned_by(context);
    allocation.base = reinterpret_cast<uint64_t>(memory);
    allocation.bytes = bytesize;
    allocation.kind = Allocation::Kind::kPinned;
    allocation.flags = Flags;
    Driver::get().allocations().insert(allocation);
    *pp = memory;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemAllocHost_v2(void** pp, size_t bytesize) {
  return cuMemHostAlloc(pp, bytesize, 0);
}

CUresult CUDAAPI cuMemFreeHost(void* p) {
  return with_context([&](Context& context) -> CUresult {
    if (p == nullptr) return CUDA_SUCCESS;
    AllocationMap& allocations = Driver::get().allocations();
    const auto found = allocations.find(reinterpret_cast<uint64_t>(p));
    if (!found || found->base != reinterpret_cast<uint64_t>(p) ||
        found->kind != Allocation::Kind::kPinned) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    quiesce(context, *found);
    if (auto allocation = allocations.erase(found->base)) Driver::get().release(*allocation);
    return context.error();
  });
}

CUresult CUDAAPI cuMemHostRegister_v2(void* p, size_t bytesize, unsigned int Flags) {
  return with_context([&](Context& context) -> CUresult {
    if (p == nullptr || bytesize == 0 || (Flags & ~kRegisterFlags) != 0)
      return CUDA_ERROR_INVALID_VALUE;
    if ((Flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0) return CUDA_ERROR_NOT_SUPPORTED;
    Allocation allocation = owned_by(context);
    allocation.base = reinterpret_cast<uint64_t>(p);
    allocation.bytes = bytesize;
    if (bytesize > UINT64_MAX - allocation.base) return CUDA_ERROR_INVALID_VALUE;
    allocation.kind = Allocation::Kind::kRegistered;
    allocation.flags = Flags;
    if ((Flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0) allocation.writable = 0;
    AllocationMap& allocations = Driver::get().allocations();
    const bool is_read_only = (Flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0;
    // All of it is pinned, for writing if work may write it.
    if (!allocations.find(allocation.base) &&
        !fargpu::is_accessible(allocation.base, bytesize,
                               is_read_only ? fargpu::MemoryUse::kRead : fargpu::MemoryUse::kWrite))
      return CUDA_ERROR_INVALID_VALUE;
    if (allocations.insert(allocation)) return CUDA_SUCCESS;
    const auto there = allocations.find(allocation.base);
    const bool registered = !there || there->kind == Allocation::Kind::kRegistered;
    return registered ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult CUDAAPI cuMemHostRegister(void* p, size_t bytesize, unsigned int Flags) {
  return cuMemHostRegister_v2(p, bytesize, Flags);
}

CUresult CUDAAPI cuMemHostUnregister(void* p) {
  return with_context([&](Context& context) -> CUresult {
    AllocationMap& allocations = Driver::get().allocations();
    if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto found = allocations.find(reinterpret_cast<uint64_t>(p));
    if (!found) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    if (found->base != reinterpret_cast<uint64_t>(p) ||
        found->kind != Allocation::Kind::kRegistered) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    quiesce(context, *found);
    allocations.erase(found->base);
    return context.error();
  });
}

CUresult CUDAAPI cuMemHostGetDevicePointer_v2(CUdeviceptr* pdptr, void* p, unsigned int Flags) {
  return with_context([&](Context&) -> CUresult {
    if (pdptr == nullptr || Flags != 0) return CUDA_ERROR_INVALID_VALUE;
    const auto found = Driver::get().allocations().find(reinterpret_cast<uint64_t>(p));
    if (!found || !found->is_host()) return CUDA_ERROR_INVALID_VALUE;
    *pdptr = reinterpret_cast<uint64_t>(p);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemHostGetFlags(unsigned int* pFlags, void* p) {
  return with_context([&](Context&) -> CUresult {
    if (pFlags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto found = Driver::get().allocations().find(reinterpret_cast<uint64_t>(p));
    const bool is_managed = found && found->kind == Allocation::Kind::kManaged;
    if (!is_managed && (!found || !found->is_host())) return CUDA_ERROR_INVALID_VALUE;
    // with unified addressing all of it is mapped
    *pFlags = (is_managed ? 0 : found->flags) | CU_MEMHOSTALLOC_DEVICEMAP;
    return CUDA_SUCCESS;
  });
}

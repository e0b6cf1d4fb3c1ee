// Managed memory: made and described here, since the driver of the server has only device memory
// for it.
#include "client/manual/common.h"
#include "client/transfer/managed.h"

namespace fargpu::client {

CUresult manual_cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) {
  if (dptr == nullptr || bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) return CUDA_ERROR_INVALID_VALUE;
  return allocate_managed(*current_context(), bytesize,
                          flags == CU_MEM_ATTACH_HOST ? ManagedMemory::Attachment::kHost
                                                      : ManagedMemory::Attachment::kGlobal,
                          dptr);
}

CUresult manual_cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
  const CallTarget target = CallTarget::of_memory(dptr);
  // Managed and pinned memory are of this process.
  auto region = target.session.observers.any(Observers::kManagedMemory)
                    ? target.session.device_memory.find(dptr)
                    : std::nullopt;
  if (!region || region->kind != MemoryKind::kManaged)
    region = target.session.host_memory.find(dptr);
  if (!region || region->kind == MemoryKind::kRegistered)
    return wire::cuMemGetAddressRange_v2(target.session, target.context, pbase, psize, dptr);
  if (pbase != nullptr) *pbase = region->base;
  if (psize != nullptr) *psize = region->bytes;
  return CUDA_SUCCESS;
}

}  // namespace fargpu::client

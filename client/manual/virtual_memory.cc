// Virtual memory management: what is mapped where is needed for copies and pointer attributes.
#include "client/manual/common.h"

namespace fargpu::client {

CUresult manual_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
                         CUmemGenericAllocationHandle handle, unsigned long long flags) {
  const Here here;
  const CUresult result =
      call_cuMemMap(here.session, here.context, ptr, size, offset, handle, flags);
  if (result != CUDA_SUCCESS) return result;
  const Context* context = current_context();
  here.session.device_memory.insert({.base = ptr,
                                     .bytes = size,
                                     .kind = MemoryKind::kVirtual,
                                     .device = context == nullptr ? 0 : context->device,
                                     .buffer_id = here.session.next_buffer_id(),
                                     .owner = handle});
  return CUDA_SUCCESS;
}

CUresult manual_cuMemUnmap(CUdeviceptr ptr, size_t size) {
  const Here here;
  const CUresult result = call_cuMemUnmap(here.session, here.context, ptr, size);
  if (result != CUDA_SUCCESS) return result;
  here.session.device_memory.erase_if([&](const Region& region) {
    return region.kind == MemoryKind::kVirtual && region.base >= ptr && region.base - ptr < size;
  });
  return CUDA_SUCCESS;
}

}  // namespace fargpu::client

// Host memory that the driver knows: shared with the worker where both are on one host, else this
// process's, from a window of addresses that the worker can mirror on demand. Registered memory is
// the application's own, which cannot be shared afterwards: to copies it is ordinary memory, and
// its addresses are kept free in the worker for a mirror.
#include <algorithm>

#include "client/manual/common.h"
#include "client/memory/reserve.h"
#include "client/process/process.h"
#include "client/transfer/exposure.h"
#include "client/transfer/ordered_copy.h"
#include "client/transfer/pinned_memory.h"
#include "common/base/log.h"
#include "common/host/mapped_memory.h"

namespace fargpu::client {
namespace {

bool registers_read_only(const Context& context) {
  const Device* const device = context.session->device(context.device);
  return device != nullptr &&
         device->attribute(CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED) != 0;
}

}  // namespace

CUresult manual_cuMemHostAlloc(void** pp, size_t bytesize, unsigned int Flags) {
  constexpr unsigned kFlags =
      CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  if (pp == nullptr || (Flags & ~kFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytesize == 0) {  // as the real driver does
    *pp = nullptr;
    return CUDA_SUCCESS;
  }
  return allocate_pinned(bytesize, Flags, pp);
}

CUresult manual_cuMemFreeHost(void* p) {
  if (p == nullptr) return CUDA_SUCCESS;
  const CallTarget target = CallTarget::of_memory(reinterpret_cast<CUdeviceptr>(p));
  Session& session = target.session;
  const auto region = session.find_host(reinterpret_cast<uint64_t>(p));
  if (!region || region->kind != MemoryKind::kHost ||
      region->base != reinterpret_cast<uint64_t>(p)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  withdraw_elsewhere(*region);
  if (session.shared_host.owns(region->base)) {
    if (!session.host_memory.erase(region->base)) return CUDA_ERROR_INVALID_VALUE;
    session.hidden_memory.remove(region->base);
    (void)finish_copies_of(session, *region);  // fails only with the session, as does free()
    return session.shared_host.free(region->base);
  }
  const CUresult finished = finish_copies_of(session, *region);
  const CUresult withdrawn = withdraw_here(session, *region);
  const CUresult result = finished != CUDA_SUCCESS ? finished : withdrawn;
  if (result != CUDA_SUCCESS) retire_addresses(p);
  if (session.host_memory.erase(region->base)) free_pinned(session, p, region->bytes);
  return result;
}

CUresult manual_cuMemHostGetDevicePointer_v2(CUdeviceptr* pdptr, void* p, unsigned int Flags) {
  if (pdptr == nullptr || p == nullptr || Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Session& session = *current_context()->session;
  const auto region = session.find_host(reinterpret_cast<uint64_t>(p));
  if (!region) return CUDA_ERROR_INVALID_VALUE;
  uint64_t device_pointer = 0;
  if (const CUresult result = expose(session, *region, &device_pointer); result != CUDA_SUCCESS)
    return result;
  *pdptr = device_pointer + (reinterpret_cast<uint64_t>(p) - region->base);
  return CUDA_SUCCESS;
}

CUresult manual_cuMemHostGetFlags(unsigned int* pFlags, void* p) {
  if (pFlags == nullptr || p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Session& session = CallTarget::of_current().session;
  const auto address = reinterpret_cast<uint64_t>(p);
  const auto managed = session.device_memory.find(address);
  if (managed && managed->kind == MemoryKind::kManaged) {
    *pFlags = CU_MEMHOSTALLOC_DEVICEMAP;
    return CUDA_SUCCESS;
  }
  const auto region = session.host_memory.find(address);
  if (!region) return CUDA_ERROR_INVALID_VALUE;
  // With unified addressing all host memory of the driver is mapped, registered memory too, whose
  // flags have the same bits.
  *pFlags = region->flags | CU_MEMHOSTALLOC_DEVICEMAP;
  return CUDA_SUCCESS;
}

CUresult manual_cuMemHostRegister_v2(void* p, size_t bytesize, unsigned int Flags) {
  constexpr unsigned kFlags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                              CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
  if (p == nullptr || bytesize == 0 || (Flags & ~kFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  const bool read_only = (Flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0;
  if ((Flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0 ||
      (read_only && !registers_read_only(*current_context())))
    return CUDA_ERROR_NOT_SUPPORTED;
  Session& session = *current_context()->session;
  const auto base = reinterpret_cast<uint64_t>(p);
  const bool is_device = session.device_memory.find(base).has_value();
  if (base + bytesize < base || is_device) return CUDA_ERROR_INVALID_VALUE;
  if (const auto there = session.host_memory.find(base); there && there->kind == MemoryKind::kHost)
    return CUDA_ERROR_INVALID_VALUE;
  if (session.host_memory.overlaps(base, bytesize))
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  // The driver pins every page, for writing if device code may write it.
  if (!is_accessible(base, bytesize, read_only ? MemoryUse::kRead : MemoryUse::kWrite))
    return CUDA_ERROR_INVALID_VALUE;
  const Region region{.base = base,
                      .bytes = bytesize,
                      .kind = MemoryKind::kRegistered,
                      .session = &session,
                      .context = current_context(),
                      .device = current_context()->device,
                      .buffer_id = session.next_buffer_id(),
                      .flags = Flags};
  if (!session.host_memory.insert(region)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  const CUresult result = enter(session, region);
  if (result != CUDA_SUCCESS) {
    session.host_memory.erase(base);
  } else {
    enter_elsewhere(region);
  }
  return result;
}

CUresult manual_cuMemHostUnregister(void* p) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CallTarget target = CallTarget::of_memory(reinterpret_cast<CUdeviceptr>(p));
  Session& session = target.session;
  const auto region = session.find_host(reinterpret_cast<uint64_t>(p));
  if (!region) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  if (region->kind != MemoryKind::kRegistered || region->base != reinterpret_cast<uint64_t>(p))
    return CUDA_ERROR_INVALID_VALUE;
  withdraw_elsewhere(*region);
  const CUresult finished = finish_copies_of(session, *region);
  const CUresult withdrawn = withdraw_here(session, *region);
  session.host_memory.erase(region->base);
  return finished != CUDA_SUCCESS ? finished : withdrawn;
}

}  // namespace fargpu::client

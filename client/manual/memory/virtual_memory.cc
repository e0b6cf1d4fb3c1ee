// Virtual memory management: what is mapped where is needed for copies and pointer attributes.
#include <span>

#include "client/managed/managed_memory.h"
#include "client/manual/apart.h"
#include "client/manual/common.h"
#include "client/memory/memory_source.h"
#include "client/memory/reserve.h"
#include "client/servers/cross_server_work.h"

namespace fargpu::client {
namespace {

MemorySource* find_physical(Session& session, CUmemGenericAllocationHandle handle) {
  return static_cast<MemorySource*>(session.find(rpc::HandleKind::kMemGeneric, handle));
}

// What was said of access, so that the first operation need not ask for it (is_untried).
void note_access(Session& session, CUdeviceptr ptr, size_t size,
                 std::span<const CUmemAccessDesc> given) {
  session.device_memory.update([&](Region& region) {
    if (region.session != &session || region.kind != MemoryKind::kVirtual || region.base < ptr ||
        region.base - ptr >= size || region.bytes > size - (region.base - ptr))
      return;
    for (const CUmemAccessDesc& one : given) {
      const bool all = one.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      if (!all) region.used = false;
      if (one.location.type == CU_MEM_LOCATION_TYPE_DEVICE && one.location.id == region.device)
        region.granted = all;
    }
  });
}

// The driver of the server has mapped memory there; for the application it is not mapped memory.
bool is_managed(Session& session, uint64_t address) {
  if (!session.observers.any(Observers::kManagedMemory)) return false;
  const auto region = session.device_memory.find(address);
  return region && region->kind == MemoryKind::kManaged;
}

}  // namespace

CUresult manual_cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t alignment,
                                    CUdeviceptr addr, unsigned long long flags) {
  const CallTarget target = CallTarget::of_current();
  Session& session = target.session;
  return allocate_apart(
      session, "cuMemAddressReserve", ptr,
      [&] {
        return wire::cuMemAddressReserve(session, target.context, ptr, size, alignment, addr,
                                         flags);
      },
      [&] {
        if (taken_by_other(session, *ptr, size)) return false;
        session.reservations.insert(
            {.base = *ptr, .bytes = size, .kind = MemoryKind::kVirtual, .session = &session});
        return true;
      },
      [&](CUdeviceptr each) { (void)wire::cuMemAddressFree(session, target.context, each, size); });
}

CUresult manual_cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  const CallTarget target = CallTarget::of_memory(ptr);
  if (is_managed(target.session, ptr)) return CUDA_ERROR_INVALID_VALUE;
  // First, since the address may be given out again before the answer is seen here.
  const auto region = target.session.reservations.erase(ptr);
  const CUresult result = wire::cuMemAddressFree(target.session, target.context, ptr, size);
  if (result != CUDA_SUCCESS && region) target.session.reservations.insert(*region);
  return result;
}

CUresult manual_cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                            const CUmemAllocationProp* prop, unsigned long long flags) {
  if (prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CallTarget target = CallTarget::of_location(&prop->location);
  const CUresult result =
      call_cuMemCreate(target.session, target.context, handle, size, prop, flags);
  if (result != CUDA_SUCCESS) return result;
  if (MemorySource* memory = find_physical(target.session, *handle)) memory->made_with(*prop);
  return CUDA_SUCCESS;
}

CUresult manual_cuMemRelease(CUmemGenericAllocationHandle handle) {
  const CallTarget target = CallTarget::of(reinterpret_cast<const void*>(handle));
  MemorySource* const memory = find_physical(target.session, handle);
  if (memory != nullptr && memory->references.fetch_sub(1) > 1) return CUDA_SUCCESS;
  return call_cuMemRelease(target.session, target.context, handle);
}

// The handle with which the memory was mapped, or one that was asked for since. Only if that is
// gone the server makes another one.
CUresult manual_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* addr) {
  const CallTarget target = CallTarget::of_memory(reinterpret_cast<CUdeviceptr>(addr));
  AddressMap& memory_map = target.session.device_memory;
  const auto address = reinterpret_cast<uint64_t>(addr);
  if (is_managed(target.session, address)) return CUDA_ERROR_INVALID_VALUE;
  if (const auto mapped = memory_map.find(address);
      handle != nullptr && mapped && mapped->kind == MemoryKind::kVirtual) {
    MemorySource* const source = find_physical(target.session, mapped->owner);
    if (source != nullptr && source->retain()) {
      *handle = mapped->owner;
      return CUDA_SUCCESS;
    }
  }
  const CUresult result =
      call_cuMemRetainAllocationHandle(target.session, target.context, handle, addr);
  if (result != CUDA_SUCCESS || handle == nullptr) return result;
  const auto region = memory_map.find(address);
  MemorySource* memory = find_physical(target.session, *handle);
  if (region && memory != nullptr) {
    memory_map.change(address, [handle](Region& each) { each.owner = *handle; });
    memory->device.store(region->device, std::memory_order_relaxed);
    memory->handle_types.store(region->handle_types, std::memory_order_relaxed);
  }
  return CUDA_SUCCESS;
}

CUresult manual_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
                         CUmemGenericAllocationHandle handle, unsigned long long flags) {
  const CallTarget target = CallTarget::of(reinterpret_cast<const void*>(handle));
  const CUresult result =
      call_cuMemMap(target.session, target.context, ptr, size, offset, handle, flags);
  if (result != CUDA_SUCCESS) return result;
  const MemorySource* memory = find_physical(target.session, handle);
  const Region region{
      .base = ptr,
      .bytes = size,
      .kind = MemoryKind::kVirtual,
      .session = &target.session,
      .device = memory == nullptr ? target.session.first_device : memory->device.load(),
      .buffer_id = target.session.next_buffer_id(),
      .handle_types = memory == nullptr ? CU_MEM_HANDLE_TYPE_NONE : memory->handle_types.load(),
      .reserved = reserve_addresses(ptr, size),
      .owner = handle};
  if (!target.session.device_memory.insert(region) && region.reserved) release_reserved(ptr, size);
  return CUDA_SUCCESS;
}

CUresult manual_cuMemUnmap(CUdeviceptr ptr, size_t size) {
  CrossServerWork::finish_with({ptr, size});
  const CallTarget target = CallTarget::of_memory(ptr);
  if (is_managed(target.session, ptr)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = wire::cuMemUnmap(target.session, target.context, ptr, size);
  if (result != CUDA_SUCCESS) return result;
  target.session.device_memory.erase_if([&](const Region& region) {
    if (region.session != &target.session || region.kind != MemoryKind::kVirtual ||
        region.base < ptr || region.base - ptr >= size)
      return false;
    if (region.reserved) release_reserved(region.base, region.bytes);
    return true;
  });
  return CUDA_SUCCESS;
}

CUresult manual_cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc,
                               size_t count) {
  const CallTarget target = CallTarget::of_memory(ptr);
  if (is_managed(target.session, ptr)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result =
      call_cuMemSetAccess(target.session, target.context, ptr, size, desc, count);
  if (result == CUDA_SUCCESS) note_access(target.session, ptr, size, {desc, count});
  return result;
}

}  // namespace fargpu::client

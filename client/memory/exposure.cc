#include "client/memory/exposure.h"

#include <cstring>

#include "client/manual/common.h"
#include "client/memory/reserve.h"

namespace fargpu::client {

CUresult expose(Session& session, const Region& region, uint64_t* device_pointer) {
  if (region.shared_at != 0) {
    *device_pointer = region.shared_at;
    return CUDA_SUCCESS;
  }
  if (const auto known = session.pages.device_pointer(region.base)) {
    *device_pointer = *known;
    return CUDA_SUCCESS;
  }
  const uint16_t context = current_context_id();
  const CUresult result =
      session.pages.add(region.base, region.bytes, context, [&](CUdeviceptr* pointer) {
        return call_fgHostMap(session, context, region.base, region.bytes, region.flags, pointer);
      });
  if (result == CUDA_ERROR_ALREADY_MAPPED) {
    if (region.kind == MemoryKind::kHost)
      retire_addresses(reinterpret_cast<const void*>(region.base));
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (result == CUDA_SUCCESS)
    *device_pointer = session.pages.device_pointer(region.base).value_or(0);
  return result;
}

CUresult withdraw(Session& session, const Region& region) {
  if (!session.pages.device_pointer(region.base)) return CUDA_SUCCESS;
  const uint16_t context = current_context_id();
  // Memory of one context is accessible in all of them: nothing may run anywhere.
  CUresult result = call_fgHostUnshare(session, context, 0);
  const CUresult pulled = after_synchronisation(session);
  session.pages.remove(region.base);
  const CUresult unmapped = call_fgHostUnmap(session, context, region.base);
  if (result == CUDA_SUCCESS) result = pulled;
  return result == CUDA_SUCCESS ? unmapped : result;
}

CUresult expose_pointers(Session& session, const std::byte* parameters, size_t bytes) {
  if (session.host_memory.empty()) return CUDA_SUCCESS;
  for (size_t at = 0; at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, parameters + at, sizeof word);
    const auto region = session.host_memory.find(word);
    if (!region || region->kind != MemoryKind::kHost || region->shared_at != 0) continue;
    uint64_t device_pointer = 0;
    if (const CUresult result = expose(session, *region, &device_pointer); result != CUDA_SUCCESS)
      return result;
  }
  return CUDA_SUCCESS;
}

bool device_may_write(Session& session, uint64_t address, uint64_t bytes) {
  if (session.host_memory.empty()) return false;
  const auto region = session.host_memory.find(address);
  if (region && region->shared_at != 0) return true;
  return session.pages.touches(address, bytes);
}

}  // namespace fargpu::client

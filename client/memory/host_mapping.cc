#include "client/memory/host_mapping.h"

#include <cstring>
#include <mutex>

#include "client/manual/common.h"

namespace fargpu::client {
namespace {

// One mapping at a time: two threads that need the same region must not both ask the worker.
std::mutex& mapping_mutex() {
  static auto& mutex = *new std::mutex;
  return mutex;
}

}  // namespace

CUresult map_host(Session& session, const Region& region, uint64_t* device_pointer) {
  if (region.shared_at != 0) {
    *device_pointer = region.shared_at;
    return CUDA_SUCCESS;
  }
  std::lock_guard lock(mapping_mutex());
  if (const auto known = session.mirrors.device_pointer(region.base)) {
    *device_pointer = *known;
    return CUDA_SUCCESS;
  }
  CUdeviceptr pointer = 0;
  const CUresult result = call_fgHostMap(session, current_context_id(), region.base, region.bytes,
                                         region.flags, &pointer);
  if (result == CUDA_ERROR_ALREADY_MAPPED) return CUDA_ERROR_OUT_OF_MEMORY;
  if (result != CUDA_SUCCESS) return result;
  session.mirrors.add(region.base, region.bytes, pointer);
  *device_pointer = pointer;
  return CUDA_SUCCESS;
}

CUresult unmap_host(Session& session, const Region& region) {
  std::lock_guard lock(mapping_mutex());
  if (!session.mirrors.device_pointer(region.base)) return CUDA_SUCCESS;
  session.mirrors.remove(region.base);
  if (const CUresult result = call_cuCtxSynchronize(session, current_context_id());
      result != CUDA_SUCCESS) {
    return result;
  }
  return call_fgHostUnmap(session, current_context_id(), region.base);
}

CUresult map_pointers(Session& session, const std::byte* parameters, size_t bytes) {
  if (session.host_memory.empty()) return CUDA_SUCCESS;
  for (size_t at = 0; at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, parameters + at, sizeof word);
    const auto region = session.host_memory.find(word);
    if (!region || region->kind != MemoryKind::kHost || region->shared_at != 0) continue;
    uint64_t device_pointer = 0;
    if (const CUresult result = map_host(session, *region, &device_pointer); result != CUDA_SUCCESS)
      return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace fargpu::client

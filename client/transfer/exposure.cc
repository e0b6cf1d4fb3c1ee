#include "client/transfer/exposure.h"

#include <chrono>
#include <thread>

#include "client/entry/here.h"
#include "client/memory/reserve.h"
#include "client/transfer/coherence.h"
#include "client/transfer/copy.h"
#include "common/base/log.h"

namespace fargpu::client {
namespace {

constexpr uint64_t kWord = sizeof(uint64_t);
constexpr auto kPatience = std::chrono::seconds(10);

bool is_registered(const Region& region) { return region.kind == MemoryKind::kRegistered; }

void say_occupied(const Region& region) {
  log::warn(
      "host memory at 0x{:x}, {} bytes, cannot be used by device code: the server's process has "
      "something else at these addresses",
      region.base, region.bytes);
}

}  // namespace

CUresult expose(Session& session, const Region& region, uint64_t* device_pointer) {
  if (region.shared_at != 0) {
    *device_pointer = region.shared_at;
    return CUDA_SUCCESS;
  }
  if (const auto known = session.pages.device_pointer(region.base)) {
    // Another thread may be about to say so, below.
    session.ordered_copies.show(region.base, region.bytes);
    *device_pointer = *known;
    return CUDA_SUCCESS;
  }
  const Context* context = current_context() != nullptr ? current_context() : region.context;
  if (context == nullptr || !context->usable()) return CUDA_ERROR_INVALID_CONTEXT;
  const auto map = [&](CUdeviceptr* made) {
    return call_fgHostMap(session, context->wire_id, region.base, region.bytes, region.flags, made);
  };
  // NOT_READY: an earlier registration in one of these pages is still being ended.
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  CUresult result = session.pages.add(region.base, region.bytes, context->wire_id, map);
  while (result == CUDA_ERROR_NOT_READY && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    result = session.pages.add(region.base, region.bytes, context->wire_id, map);
  }
  if (result == CUDA_ERROR_ALREADY_MAPPED) {
    say_occupied(region);
    if (region.kind == MemoryKind::kHost)
      retire_addresses(reinterpret_cast<const void*>(region.base));
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (result != CUDA_SUCCESS) return result;
  // The streams of copies that are under way do not wait for their bytes.
  session.ordered_copies.show(region.base, region.bytes);
  session.hidden_memory.remove(region.base);
  *device_pointer = session.pages.device_pointer(region.base).value_or(0);
  return CUDA_SUCCESS;
}

CUresult expose_region_at(Session& session, uint64_t base) {
  const auto region = session.find_host(base);
  if (!region) return CUDA_SUCCESS;
  uint64_t device_pointer = 0;
  return expose(session, *region, &device_pointer);
}

CUresult expose_operands(Session& session, std::initializer_list<CUdeviceptr> addresses) {
  for (const CUdeviceptr address : addresses) {
    const auto base = session.hidden_memory.find(address);
    if (!base) continue;
    if (const CUresult result = expose_region_at(session, *base); result != CUDA_SUCCESS)
      return result;
  }
  return CUDA_SUCCESS;
}

CUresult expose_words(Session& session, const void* words, size_t bytes) {
  if (!session.hidden_memory.any()) [[likely]]
    return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  session.hidden_memory.scan(words, bytes, [&](uint64_t base) {
    if (result == CUDA_SUCCESS) result = expose_region_at(session, base);
  });
  return result;
}

CUresult expose_copied(Session& session, const Side& device, const Side& host, const Box& box) {
  if (!session.hidden_memory.any() || box.width > kMostScanned ||
      box.width * box.height > kMostScanned || box.width * box.height * box.depth > kMostScanned) {
    return CUDA_SUCCESS;
  }
  for (size_t z = 0; z < box.depth; ++z) {
    for (size_t y = 0; y < box.height; ++y) {
      const uint64_t to = device.address + z * device.slice + y * device.pitch;
      const uint64_t from = host.address + z * host.slice + y * host.pitch;
      // Words that are aligned where device code will see them.
      const size_t skip = (kWord - to % kWord) % kWord;
      if (skip >= box.width) continue;
      const CUresult result =
          expose_words(session, reinterpret_cast<const void*>(from + skip), box.width - skip);
      if (result != CUDA_SUCCESS) return result;
    }
  }
  return CUDA_SUCCESS;
}

CUresult enter(Session& session, const Region& region) {
  if (is_registered(region)) {
    const CUresult result =
        call_fgHostReserve(session, current_context_id(), region.base, region.bytes);
    if (result == CUDA_ERROR_ALREADY_MAPPED) {
      say_occupied(region);
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    // NOT_SUPPORTED: this worker's process may not choose addresses; use will tell.
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_SUPPORTED) return result;
  }
  session.hidden_memory.add(region.base, region.bytes);
  if ((region.flags & CU_MEMHOSTALLOC_DEVICEMAP) == 0) return CUDA_SUCCESS;
  uint64_t device_pointer = 0;
  // Memory that the worker cannot mirror can still be copied; only its use by device code fails.
  if (const CUresult result = expose(session, region, &device_pointer); result != CUDA_SUCCESS)
    log::warn("mapped memory at 0x{:x}, {} bytes, has no mirror on the server: error {}",
              region.base, region.bytes, static_cast<int>(result));
  return CUDA_SUCCESS;
}

CUresult withdraw(Session& session, const Region& region) {
  session.hidden_memory.remove(region.base);
  const bool exposed = session.pages.device_pointer(region.base).has_value();
  if (!exposed && !is_registered(region)) return CUDA_SUCCESS;
  const uint16_t context = current_context_id();
  CUresult result = CUDA_SUCCESS;
  if (exposed) {
    // Memory of one context is accessible in all of them: nothing may run anywhere.
    result = call_fgHostUnshare(session, context, 0);
    const CUresult pulled = after_synchronisation(session);
    session.pages.remove(region.base);
    if (result == CUDA_SUCCESS) result = pulled;
  }
  const CUresult unmapped = call_fgHostUnmap(session, context, region.base);
  // Not even reserved: see enter().
  if (!exposed && unmapped == CUDA_ERROR_NOT_MAPPED) return CUDA_SUCCESS;
  return result == CUDA_SUCCESS ? unmapped : result;
}

bool device_may_write(Session& session, uint64_t address, uint64_t bytes) {
  if (session.host_memory.empty()) return false;
  const auto region = session.find_host(address);
  if (region && region->shared_at != 0) return true;
  return session.pages.touches(address, bytes);
}

bool is_mirrored(Session& session, uint64_t address, uint64_t bytes) {
  if (!session.pages.any()) return false;
  const auto region = session.find_host(address);
  if (!region || region->shared_at != 0) return false;
  if (bytes > region->base + region->bytes - address) return false;
  // By the same address, as copies name it.
  return session.pages.device_pointer(region->base) == region->base;
}

}  // namespace fargpu::client

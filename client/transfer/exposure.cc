#include "client/transfer/exposure.h"

#include <chrono>
#include <thread>

#include "client/entry/call_target.h"
#include "client/memory/reserve.h"
#include "client/transfer/coherence.h"
#include "client/transfer/touches.h"
#include "common/base/log.h"
#include "generated/client/wire/internal.h"
#include "generated/schema/opcodes.h"

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

CUresult unmap(Session& session, uint16_t context, uint64_t address) {
  const DrainScope drain(session, context);
  return wire::fgHostUnmap(session, context, address);
}

// The worker may have made a mirror in the next life of a primary context, of which nobody here
// knows.
void forget_mirror(Session& session, const Context& context, const Region& region) {
  (void)unmap(session, context.wire_id, region.base);
  if (is_registered(region))
    (void)wire::fgHostReserve(session, context.wire_id, region.base, region.bytes);
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
  const ContextEpoch epoch(*context);
  const auto ended = [&epoch] { return epoch.is_over(); };
  // One thread at a time, so that what is forgotten is this thread's mirror.
  const auto map = [&](CUdeviceptr* made) -> CUresult {
    const CUresult mapped =
        wire::fgHostMap(session, context->wire_id, region.base, region.bytes, region.flags, made);
    if (mapped != CUDA_SUCCESS || !ended()) return mapped;
    if (context->usable()) forget_mirror(session, *context, region);
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  };
  const auto gate = [&]() -> std::shared_ptr<PageGate> {
    // The worker need not look for what device code has written.
    if (region.read_only() && session.knows(schema::op_fgPagesOnDemand))
      (void)wire::fgPagesOnDemand(session, context->wire_id, region.base, 1);
    auto found = gate_of(session, region);
    if (found == nullptr || !found->watch()) return nullptr;
    if (region.read_only() ||
        wire::fgPagesOnDemand(session, context->wire_id, region.base, 1) == CUDA_SUCCESS)
      return found;
    found->unwatch();
    return nullptr;
  };
  // NOT_READY: an earlier registration in one of these pages is still being ended.
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  CUresult result = session.pages.add(region.base, region.bytes, context->wire_id, map, ended, gate,
                                      region.read_only());
  while (result == CUDA_ERROR_NOT_READY && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    result = session.pages.add(region.base, region.bytes, context->wire_id, map, ended, gate,
                               region.read_only());
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
  const auto exposed = session.pages.device_pointer(region.base);
  if (!exposed) {
    // The context has ended meanwhile, and may have hidden the region before it was shown here.
    session.hidden_memory.add(region.base, region.bytes);
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  *device_pointer = *exposed;
  return CUDA_SUCCESS;
}

CUresult expose_region_at(Session& session, uint64_t base) {
  const auto region = session.find_host(base);
  if (!region) return CUDA_SUCCESS;
  uint64_t device_pointer = 0;
  return expose(session, *region, &device_pointer);
}

CUresult expose_operands(Session& session, std::initializer_list<CUdeviceptr> addresses) {
  if (!session.hidden_memory.any()) [[likely]]
    return CUDA_SUCCESS;
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

CUresult expose_copied(Session& session, const copy::Rows& device, const copy::Rows& host,
                       const copy::Shape& shape) {
  if (!session.hidden_memory.any() || shape.bytes() > kMostScanned) return CUDA_SUCCESS;
  for (uint64_t z = 0; z < shape.depth; ++z) {
    for (uint64_t y = 0; y < shape.height; ++y) {
      // Words that are aligned where device code will see them.
      const uint64_t skip = (kWord - device.at(0, y, z).address % kWord) % kWord;
      if (skip >= shape.width) continue;
      const CUresult result = expose_words(
          session, reinterpret_cast<const void*>(host.at(skip, y, z).address), shape.width - skip);
      if (result != CUDA_SUCCESS) return result;
    }
  }
  return CUDA_SUCCESS;
}

CUresult enter(Session& session, const Region& region) {
  if (is_registered(region)) {
    const CUresult result =
        wire::fgHostReserve(session, current_context_id(), region.base, region.bytes);
    if (result == CUDA_ERROR_ALREADY_MAPPED) {
      say_occupied(region);
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    // NOT_SUPPORTED: this worker's process may not choose addresses; use will tell.
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_SUPPORTED) return result;
  }
  if (is_registered(region) && region.session == &session && comes_when_touched(session))
    session.gated_host.add(region.base, region.bytes);
  session.hidden_memory.add(region.base, region.bytes);
  const bool is_mapped = (region.flags & CU_MEMHOSTALLOC_DEVICEMAP) != 0;
  const bool may_be_known =
      is_registered(region) && session.hidden_memory.may_be_known(region.base, region.bytes);
  if (!is_mapped && !may_be_known) return CUDA_SUCCESS;
  uint64_t device_pointer = 0;
  // Memory that the worker cannot mirror can still be copied; only its use by device code fails.
  const CUresult result = expose(session, region, &device_pointer);
  if (result != CUDA_SUCCESS && is_mapped)
    log::warn(
        "mapped memory at 0x{:x}, {} bytes, can be copied, but not used by device code: the server "
        "has no mirror of it (error {}; 2: see host-memory-per-session of fargpud)",
        region.base, region.bytes, static_cast<int>(result));
  return CUDA_SUCCESS;
}

CUresult withdraw(Session& session, const Region& region) {
  session.hidden_memory.remove(region.base);
  const bool exposed = session.pages.device_pointer(region.base).has_value();
  if (!exposed && !is_registered(region)) return CUDA_SUCCESS;
  const uint16_t context = current_context_id();
  CUresult result = CUDA_SUCCESS;
  if (!is_registered(region)) {
    // Its bytes are needed no more. The call waits for the work that uses it, so it synchronises
    // other memory.
    session.pages.remove(region.base);
    result = unmap(session, context, region.base);
    const CUresult pulled = after_synchronisation(session);
    return result == CUDA_SUCCESS ? pulled : result;
  }
  if (exposed) {
    // Memory of one context is accessible in all of them: nothing may run anywhere.
    {
      const DrainScope drain(session, context);
      result = wire::fgHostUnshare(session, context, 0);
    }
    // What is still fetched on access is the application's alone from now on.
    (void)session.pages.keep_open(region.base);
    const CUresult pulled = after_synchronisation(session);
    session.pages.remove(region.base);
    session.hidden_memory.was_exposed(region.base, region.bytes);
    if (result == CUDA_SUCCESS) result = pulled;
  }
  const CUresult unmapped = unmap(session, context, region.base);
  // Not even reserved: see enter().
  if (!exposed && unmapped == CUDA_ERROR_NOT_MAPPED) return CUDA_SUCCESS;
  return result == CUDA_SUCCESS ? unmapped : result;
}

}  // namespace fargpu::client

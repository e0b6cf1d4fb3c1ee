#include "client/transfer/pinned_memory.h"

#include <vector>

#include "client/entry/call_target.h"
#include "client/memory/reserve.h"
#include "client/process/process.h"
#include "client/transfer/exposure.h"
#include "client/transfer/ordered_copy.h"
#include "client/transfer/touches.h"
#include "common/base/log.h"

namespace fargpu::client {
namespace {

// Visits the other servers' sessions with the region as they have it. No context is current
// meanwhile: the current one is of the region's session.
template <typename Visit>
void elsewhere(const Region& region, Visit&& visit) {
  if (Process::get().session(1) == nullptr) [[likely]]
    return;
  const ContextScope none(nullptr);
  Process::get().for_each_session([&](Session& session) {
    if (&session != region.session && !session.lost.load())
      visit(session, session.as_registered(region));
  });
}

void* allocate_here(Session& session, size_t bytes, unsigned flags) {
  if ((flags & CU_MEMHOSTALLOC_DEVICEMAP) != 0 && comes_when_touched(session)) {
    void* const memory = session.gated_host.allocate(bytes);
    if (memory != nullptr) return memory;
  }
  return allocate_host(bytes);
}

}  // namespace

void free_pinned(Session& session, void* memory, size_t bytes) {
  if (!session.gated_host.remove(reinterpret_cast<uint64_t>(memory))) free_host(memory, bytes);
}

void enter_elsewhere(const Region& region) {
  elsewhere(region, [](Session& session, const Region& own) { (void)enter(session, own); });
}

void withdraw_elsewhere(const Region& region) {
  elsewhere(region, [](Session& session, const Region& own) {
    (void)finish_copies_of(session, own);
    if (const CUresult result = withdraw(session, own);
        result != CUDA_SUCCESS && !session.lost.load()) {
      log::warn("host memory at 0x{:x}, {} bytes, may stay registered at server {}: error {}",
                own.base, own.bytes, session.settings.server, static_cast<int>(result));
    }
    (void)session.remote_host.remove(own);
  });
}

CUresult withdraw_here(Session& session, const Region& region) {
  const CUresult withdrawn = withdraw(session, region);
  const CUresult removed = session.remote_host.remove(region);
  if (region.kind == MemoryKind::kRegistered) session.gated_host.remove(region.base);
  return withdrawn != CUDA_SUCCESS ? withdrawn : removed;
}

void end_registrations_of(const Context& context) {
  Session& session = *context.session;
  std::vector<Region> ending;
  session.host_memory.for_each([&](const Region& region) {
    if (region.kind == MemoryKind::kRegistered && region.context == &context)
      ending.push_back(region);
  });
  for (const Region& region : ending) {
    withdraw_elsewhere(region);
    (void)withdraw_here(session, region);
  }
}

CUresult allocate_pinned(size_t bytes, unsigned flags, void** result) {
  Session& session = *current_context()->session;
  const ContextEpoch epoch(*current_context());
  const auto shared = session.shared_host.allocate(*current_context(), bytes);
  void* memory = shared ? shared->memory : allocate_here(session, bytes, flags);
  if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  const Region region{.base = reinterpret_cast<uint64_t>(memory),
                      .bytes = bytes,
                      .kind = MemoryKind::kHost,
                      .session = &session,
                      .context = current_context(),
                      .device = current_context()->device,
                      .buffer_id = session.next_buffer_id(),
                      .flags = flags,
                      .shared_at = shared ? shared->device_pointer : 0};
  const bool inserted = session.host_memory.insert(region);
  if (!inserted || epoch.is_over()) {
    if (inserted) session.host_memory.erase(region.base);
    session.hidden_memory.remove(region.base);
    if (shared) {
      session.shared_host.free(region.base);
    } else {
      free_pinned(session, memory, bytes);
    }
    return inserted ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_OUT_OF_MEMORY;
  }
  *result = memory;
  enter_elsewhere(region);
  return shared ? CUDA_SUCCESS : enter(session, region);
}

}  // namespace fargpu::client

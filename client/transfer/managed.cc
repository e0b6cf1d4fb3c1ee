#include "client/transfer/managed.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "client/entry/call_target.h"
#include "client/entry/own_streams.h"
#include "client/managed/fault_handler.h"
#include "client/managed/managed_state.h"
#include "client/process/managed_way.h"
#include "client/transfer/copy.h"
#include "client/transfer/submission.h"
#include "common/base/log.h"
#include "common/host/memory_page.h"
#include "common/host/thread.h"
#include "common/rpc/handle_kind.h"
#include "generated/client/wire/memory.h"
#include "generated/client/wire/virtual_memory.h"

namespace fargpu::client {
namespace {

class ChannelWire final : public ManagedMemory::Wire {
 public:
  explicit ChannelWire(Session& session) : session_(session) {}

  CUresult push(const ManagedMemory::Piece& piece) override {
    return carry(piece, [&](const CallTarget& target, CUstream stream, const Endpoint& device,
                            const Endpoint& local) {
      return copy_to_device(target, device, local, {device.known}, stream, true);
    });
  }
  CUresult fetch(const ManagedMemory::Piece& piece) override {
    return carry(piece, [&](const CallTarget& target, CUstream stream, const Endpoint& device,
                            const Endpoint& local) {
      return copy_to_host(target, local, device, {device.known}, stream, true);
    });
  }
  CUresult finish_pushes(Context& of) override {
    Context& context = context_for(of);
    const ContextScope scope(&context);
    CUstream stream = nullptr;
    const CUresult result = streams_.in(context, &stream);
    if (result != CUDA_SUCCESS) return result;
    return await_stream(session_, context.wire_id, stream);
  }
  CUresult clear(Context& context, uint64_t address, uint64_t bytes) override {
    const ContextScope scope(&context);
    CUstream stream = nullptr;
    CUresult result = streams_.in(context, &stream);
    if (result == CUDA_SUCCESS)
      result =
          submit(session_, context.wire_id, stream,
                 Submission::kHostMemory | Submission::kQueuePlace, [&](uint64_t id) {
                   return wire::cuMemsetD8Async(session_, context.wire_id, address, 0, bytes, id);
                 });
    if (result != CUDA_SUCCESS) return result;
    return await_stream(session_, context.wire_id, stream);
  }
  void await_idle(Context& context) override {
    if (session_.observers.any(Observers::kHeldStreams | Observers::kValueWaits)) return;
    (void)await_context(session_, context_for(context).wire_id);
  }
  // In frames it would hold up calls.
  uint64_t most_fetched() override {
    return uint64_t{StagingRing::possible(session_) ? 32u : 8u} << 20;
  }

 private:
  // The application's size of an allocation is not that of its pages.
  template <typename Copy>
  CUresult carry(const ManagedMemory::Piece& piece, Copy&& copy) {
    return without_exception([&]() -> CUresult {
      if (piece.parts.empty()) return CUDA_SUCCESS;
      const ManagedMemory::OwnWork own;
      Context& context = context_for(piece.context);
      const ContextScope scope(&context);
      CUstream stream = nullptr;
      CUresult result = streams_.in(context, &stream);
      const CallTarget target = CallTarget::of_current();
      for (const auto& [address, bytes] : piece.parts) {
        if (result != CUDA_SUCCESS) break;
        const Endpoint device{.device = true,
                              .rows = {address},
                              .region = Region{.base = address,
                                               .bytes = bytes,
                                               .kind = MemoryKind::kManaged,
                                               .session = &session_},
                              .known = bytes};
        const std::byte* const here = piece.local + (address - piece.address);
        const Endpoint local = host_end(session_, {reinterpret_cast<uint64_t>(here)});
        result = copy(target, stream, device, local);
      }
      return result;
    });
  }

  // Variables outlive the context that they were found in.
  Context& context_for(Context& wanted) {
    if (wanted.usable()) return wanted;
    const std::vector<Context*> others = session_.contexts.active_of(session_.number);
    return others.empty() ? wanted : *others.front();
  }

  Session& session_;
  OwnStreams streams_;
};

bool is_managed(const Endpoint& end) {
  return end.device && end.region && end.region->kind == MemoryKind::kManaged;
}

// Addresses in the worker: `wanted` where its driver gives these, or 0: any.
CUresult reserve_in_worker(Session& session, const Context& context, uint64_t bytes,
                           CUdeviceptr wanted, CUdeviceptr* given) {
  return wire::cuMemAddressReserve(session, context.wire_id, given, bytes, kManagedGranule, wanted,
                                   0);
}

void unreserve_in_worker(Session& session, const Context& context, CUdeviceptr given,
                         uint64_t bytes) {
  (void)wire::cuMemAddressFree(session, context.wire_id, given, bytes);
}

// Device memory at the chunk's addresses, which are reserved, for all GPUs of the session.
CUresult map_in_worker(Session& session, const Context& context, const DualMapping& chunk) {
  const CUdeviceptr given = chunk.address();
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE,
                         session.device(context.device)->worker_ordinal};
  const NewHandle memory(session, rpc::HandleKind::kMemGeneric);
  if (memory.id() == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result =
      wire::cuMemCreate(session, context.wire_id, memory.id(), chunk.bytes(), &properties, 0);
  if (result != CUDA_SUCCESS) return result;
  result = wire::cuMemMap(session, context.wire_id, given, chunk.bytes(), 0, memory.id(), 0);
  // The mapping keeps it.
  (void)wire::cuMemRelease(session, context.wire_id, memory.id());
  if (result != CUDA_SUCCESS) return result;
  for (const Device& device : session.snapshot.devices) {
    CUmemAccessDesc access{};
    access.location = {CU_MEM_LOCATION_TYPE_DEVICE, device.worker_ordinal};
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    const CUresult allowed =
        wire::cuMemSetAccess(session, context.wire_id, given, chunk.bytes(), &access, 1);
    // A GPU without a way to the other one's memory cannot use it.
    if (allowed != CUDA_SUCCESS && device.ordinal == context.device) result = allowed;
  }
  if (result == CUDA_SUCCESS) return CUDA_SUCCESS;
  (void)wire::cuMemUnmap(session, context.wire_id, given, chunk.bytes());
  return result;
}

void unmap_in_worker(Session& session, uint16_t context, DualMapping& chunk) {
  if (session.lost.load()) return;
  CUresult result = wire::cuMemUnmap(session, context, chunk.address(), chunk.bytes());
  if (result == CUDA_SUCCESS)
    result = wire::cuMemAddressFree(session, context, chunk.address(), chunk.bytes());
  if (result != CUDA_SUCCESS) chunk.retire();
}

// A chunk at addresses that this process and the worker have free. They are reserved in the worker.
CUresult place_chunk(Session& session, const Context& context, uint64_t bytes,
                     std::optional<DualMapping>* chunk) {
  // What this process chooses also suits the drivers of other servers.
  constexpr int kTriesHere = 4, kTriesThere = 16;
  CUdeviceptr given = 0;
  for (int attempt = 0; attempt < kTriesHere; ++attempt) {
    *chunk = DualMapping::make(AddressUse::kManaged, bytes);
    if (!*chunk) return CUDA_ERROR_OUT_OF_MEMORY;
    const uint64_t wanted = (*chunk)->address();
    const CUresult result = reserve_in_worker(session, context, bytes, wanted, &given);
    if (result == CUDA_SUCCESS && given == wanted) return CUDA_SUCCESS;
    (*chunk)->retire();
    if (result != CUDA_SUCCESS) return result;
    unreserve_in_worker(session, context, given, bytes);
  }
  // A driver does not give addresses everywhere. What it chooses and is not free here is kept until
  // the end, so that it is not given again.
  std::vector<CUdeviceptr> kept;
  CUresult result = CUDA_SUCCESS;
  chunk->reset();
  for (int attempt = 0; !*chunk && attempt < kTriesThere; ++attempt) {
    result = reserve_in_worker(session, context, bytes, 0, &given);
    if (result != CUDA_SUCCESS) break;
    *chunk = DualMapping::make_at(given, bytes);
    if (!*chunk) kept.push_back(given);
  }
  for (const CUdeviceptr each : kept) unreserve_in_worker(session, context, each, bytes);
  if (*chunk) return CUDA_SUCCESS;
  if (result != CUDA_SUCCESS) return result;
  log::warn(
      "cuMemAllocManaged: the server's driver gives none of the addresses that are free here");
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult make_chunk(Session& session, const Context& context, uint64_t bytes,
                    std::optional<DualMapping>* chunk) {
  CUresult result = place_chunk(session, context, bytes, chunk);
  if (result != CUDA_SUCCESS) return result;
  result = map_in_worker(session, context, **chunk);
  if (result != CUDA_SUCCESS)
    unreserve_in_worker(session, context, (*chunk)->address(), (*chunk)->bytes());
  return result;
}

// An access that waits in the system.
void serve(Session& session, uint64_t address, bool is_write, uint64_t heard) {
  switch (session.managed.touch(address, is_write, heard)) {
    case ManagedMemory::Touched::kServed:
      return;
    case ManagedMemory::Touched::kUnknown:
      // It has ended meanwhile; now it faults.
      return session.managed_state->user_faults.retry(page_of(address), kPageBytes);
    case ManagedMemory::Touched::kNeedsService:
      return session.managed_state->faults.post(address, is_write, heard);
  }
}

void serve_faults(Session& session) {
  UserFaults::Accesses found;
  for (;;) {
    session.managed_state->user_faults.wait(std::nullopt);
    do {
      const uint64_t heard = session.managed.gives();
      for (const UserFaults::Access& access : session.managed_state->user_faults.take(found))
        serve(session, access.address, access.is_write, heard);
    } while (session.managed.show_on());
  }
}

// Its threads live as long as the process.
void start(Session& session) {
  ManagedState& state = *session.managed_state;
  std::call_once(state.started, [&] {
    state.faults.start();
    // What is wrong was an error when the process connected.
    const auto chosen = choose_managed_way();
    const ManagedWay way = chosen.ok() ? *chosen : ManagedWay{};
    const bool by_messages = way.by_messages && state.user_faults.open();
    ManagedMemory::AskShow ask_show;
    if (by_messages) ask_show = [&state] { state.user_faults.wake(); };
    session.managed.set_wire(
        std::make_unique<ChannelWire>(session), by_messages ? &state.user_faults : nullptr,
        way.is_eager, [&state](uint64_t address) { state.faults.post_ahead(address); },
        std::move(ask_show));
    if (by_messages) Thread([&session] { serve_faults(session); }).detach();
  });
  if (session.managed.by_signals()) install_fault_handler();
}

void give_back(Session& session, uint16_t context, uint64_t address, uint64_t bytes) {
  auto chunk = session.managed_state->arenas.give_back(address, bytes);
  if (!chunk) return;
  unwatch_faults(chunk->address());
  unmap_in_worker(session, context, *chunk);
}

}  // namespace

CUresult allocate_managed(Context& context, uint64_t bytes, ManagedMemory::Attachment attachment,
                          CUdeviceptr* address) {
  Session& session = *context.session;
  const uint64_t chunk_bytes = Arenas::chunk_bytes(bytes);
  if (chunk_bytes == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  start(session);
  const uint64_t pages = page_from(bytes);
  auto taken = session.managed_state->arenas.take(context.device, pages);
  if (!taken) {
    std::optional<DualMapping> chunk;
    const CUresult made = make_chunk(session, context, chunk_bytes, &chunk);
    if (made != CUDA_SUCCESS) return made;
    watch_faults(chunk->address(), chunk->bytes(), session.managed, session.managed_state->faults);
    taken = session.managed_state->arenas.add(context.device, std::move(*chunk), pages);
  }
  const Region region{.base = taken->address,
                      .bytes = bytes,
                      .kind = MemoryKind::kManaged,
                      .session = &session,
                      .context = &context,
                      .device = context.device,
                      .buffer_id = session.next_buffer_id()};
  const CUresult added = session.managed.add({.address = taken->address,
                                              .bytes = pages,
                                              .mapping = taken->chunk,
                                              .context = &context,
                                              .attachment = attachment});
  if (added != CUDA_SUCCESS || !session.device_memory.insert(region)) {
    session.managed.remove(taken->address);
    give_back(session, context.wire_id, taken->address, pages);
    return added == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : added;
  }
  *address = taken->address;
  return CUDA_SUCCESS;
}

CUresult free_managed(Session& session, uint64_t address) {
  const auto region = session.device_memory.find(address);
  if (!region || region->base != address || region->kind != MemoryKind::kManaged ||
      region->owner != 0)
    return CUDA_ERROR_INVALID_VALUE;
  // Of two threads that free it at once one does.
  if (!session.device_memory.erase(address)) return CUDA_ERROR_INVALID_VALUE;
  const uint16_t context = region->context->wire_id;
  const CUresult result = await_context(session, context);
  session.managed.remove(address);
  give_back(session, context, address, page_from(region->bytes));
  return result;
}

void free_managed_of(Context& context) {
  Session& session = *context.session;
  if (!session.observers.any(Observers::kManagedMemory)) return;
  while (const uint64_t address = session.managed.first_of(context))
    if (free_managed(session, address) == CUDA_ERROR_INVALID_VALUE) break;
}

CUresult add_managed_variable(Session& session, const char* function,
                              const ManagedVariables::Variable& variable) {
  start(session);
  const CUresult result = session.managed_state->variables.add(variable);
  if (result != CUDA_SUCCESS) {
    log::warn(
        "{}: the server's driver has a __managed__ variable of {} bytes at {:#x}, where this "
        "process has something else or gets no memory: refused",
        function, variable.bytes, variable.address);
    return result;
  }
  // Whose variable is known already has the region, too.
  (void)session.device_memory.insert({.base = variable.address,
                                      .bytes = variable.bytes,
                                      .kind = MemoryKind::kManaged,
                                      .session = &session,
                                      .device = variable.context->device,
                                      .buffer_id = session.next_buffer_id(),
                                      .owner = variable.owner});
  return CUDA_SUCCESS;
}

CUresult unload_with_variables(Session& session, uint64_t owner,
                               const std::function<CUresult()>& unload) {
  if (!session.observers.any(Observers::kManagedMemory)) return unload();
  // They may have to come back.
  (void)session.managed.give();
  const auto ended = session.managed_state->variables.end_of(owner);
  const CUresult result = unload();
  if (result == CUDA_SUCCESS) return result;
  for (const ManagedVariables::Variable& variable : ended)
    (void)session.managed_state->variables.add(variable);
  return result;
}

void end_variables_of(const Context& context) {
  const Session& session = *context.session;
  if (!session.observers.any(Observers::kManagedMemory)) return;
  session.managed_state->variables.end([&](const ManagedVariables::Variable& variable) {
    return variable.context == &context &&
           rpc::handle_kind(variable.owner) == rpc::HandleKind::kModule;
  });
}

ManagedUse::ManagedUse(Session& session, CUstream stream, const Endpoint& dst,
                       const Endpoint& src) {
  if (!session.observers.any(Observers::kManagedMemory) || ManagedMemory::is_own_work()) [[likely]]
    return;
  if (!is_managed(dst) && !is_managed(src)) return;
  ResolvedStream resolved;
  result_ = resolve_stream(session, stream, &resolved);
  if (result_ != CUDA_SUCCESS) return;
  session_ = &session;
  session.managed.begin_work();
  result_ = session.managed.give();
}

ManagedUse::~ManagedUse() {
  if (session_ != nullptr) [[unlikely]]
    session_->managed.end_work();
}

CUresult await_attached(Session& session, CUstream stream, const Endpoint& dst,
                        const Endpoint& src) {
  bool is_global = true;
  for (const Endpoint* end : {&dst, &src}) {
    if (!is_managed(*end)) continue;
    session.managed.with(end->rows.address, [&](const ManagedMemory::Allocation& memory) {
      is_global &= memory.attachment == ManagedMemory::Attachment::kGlobal;
    });
  }
  if (is_global) return CUDA_SUCCESS;
  return await_stream(session, current_context_id(), stream);
}

}  // namespace fargpu::client

#include "server/session/session_parts.h"

#include <utility>

#include "generated/server/object_ends.h"

namespace fargpu::server {

SessionParts::SessionParts(const DriverTable& driver, transport::Transport& transport,
                           std::atomic<uint64_t>& memory_used, CapturedOutput& captured,
                           const SessionSetup& setup)
    : transport(transport),
      max_bulk_bytes(setup.client_limits.max_bulk_bytes),
      max_ptx_bytes(setup.ptx_bytes != 0 ? setup.ptx_bytes : UINT64_MAX),
      responder(transport),
      output(responder, captured, printing_code, max_bulk_bytes),
      contexts(driver, setup.devices),
      daemon_images(setup.daemon.control, setup.daemon.version),
      images(daemon_images, setup.image_bytes),
      host_budget(std::make_shared<HostBudget>(setup.host_bytes)),
      remote_staging(transport.remote_memory()),
      staging(&driver, host_budget),
      direct_memory(driver, transport.remote_memory(), setup.direct),
      memory(driver, Ledger(setup.devices, setup.memory_bytes, setup.job_memory), contexts,
             direct_memory, memory_used),
      host_pages(driver, host_budget),
      shared_host(driver, host_budget),
      stream_events(driver),
      copy_fences(driver, stream_events),
      posted(transport),
      core{driver, responder, output, contexts, handles, pending, posted, stream_events},
      sharing(core, memory, setup.sharing),
      ended_sessions(core, setup.daemon),
      ordered_copies(core, stream_holds, staging, remote_staging, memory, max_bulk_bytes),
      event_waits(core, completion),
      stream_stock(core),
      host_gate(core, stream_holds),
      told_streams(core),
      completion(core, stream_holds, told_streams),
      ended_graphs(core, host_gate, stream_holds, completion) {
  handles.when_ended([this](const ObjectEnd& end) {
    // Destroyed by the client, or with its context.
    if (rpc::handle_kind(end.id) == rpc::HandleKind::kGraphExec)
      ended_graphs.add(end.context, static_cast<ExecutableGraph*>(end.handle)->shared_from_this());
    tell_object_end(*this, end);
    kept_objects.ended(end.id);
  });
  staging.before_unmap([this](std::byte* memory) { remote_staging.forget(memory); });
  staging.on_retire([this](StagingRegistration taken) {
    // The driver waits for what runs before it lets go of memory.
    const auto registration = std::make_shared<StagingRegistration>(std::move(taken));
    completion.off_thread_when_idle(
        registration->context(), [registration] { return registration->undo(); },
        [registration](CUresult) {});
  });
  host_gate.when_held([this] { stream_stock.fill(); }, [this] { ended_graphs.look(); });
  responder.call_first([this] { ordered_copies.flush(); });
  output.flush_first([this] { ordered_copies.flush(); });
}

CUresult SessionParts::push_beside(const HostPages::Push& push) {
  const CUresult result = host_pages.push_beside(push);
  // What lay in the block that is let go of is in place.
  if (result == CUDA_SUCCESS) pushed[host_pages.pushes() % pushed.size()] = take_bulk();
  return result;
}

SessionParts::~SessionParts() {
  settle_pushes();
  host_gate.close();
  ordered_copies.close();
  stream_holds.close();
}

std::shared_ptr<ContextEnd> SessionParts::end_context(uint16_t id) {
  auto end = std::make_shared<ContextEnd>(ContextEnd{id});
  (void)contexts.enter(id);
  handles.remove_context(id);
  tell_context_end(*this, *end);
  contexts.remove(id);
  contexts.leave();
  return end;
}

}  // namespace fargpu::server

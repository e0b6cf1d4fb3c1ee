#include "client/transfer/submission.h"

#include <algorithm>
#include <utility>

#include "client/entry/call_target.h"
#include "client/managed/managed_memory.h"
#include "client/transfer/coherence.h"
#include "client/transfer/ordered_copy.h"
#include "client/transfer/touches.h"
#include "common/rpc/frame_sent.h"
#include "generated/client/wire/context.h"
#include "generated/client/wire/stream.h"

namespace fargpu::client {
namespace {

// The session of the submission on this thread that has sent what the application wrote, for its
// stream and what it does there; a thread makes one copy at a time.
thread_local const Session* covered = nullptr;

void wait_for_room(Session& session, CUstream stream, const ResolvedStream& resolved) {
  session.queue_marks.wait_for_place(StreamState::queue_of(*resolved.state),
                                     {stream_context_id(stream), resolved.id});
}

void wait_behind_host_functions(Session& session, uint16_t context, const ResolvedStream& resolved,
                                uint32_t places) {
  if (HostCalls::on_this_thread()) return;
  const std::shared_ptr<StreamState> state = *resolved.state;  // it may be destroyed meanwhile
  const auto query = [&](uint64_t) { return wire::cuStreamQuery(session, context, resolved.id); };
  session.queue_limit.enter(
      state->share, session.host_calls,
      [&] {
        return synchronise(session, context, Synchronisation::Of::kSome, nullptr, query) !=
               CUDA_ERROR_NOT_READY;
      },
      places);
}

// Before that, for work that takes several places: all but the one that take_place() takes.
void take_places_ahead(Session& session, CUstream stream, const ResolvedStream& resolved,
                       uint32_t places) {
  if (resolved.state == nullptr) return;
  const bool exactly = session.observers.any(Observers::kFunctionsEver);
  if (!(*resolved.state)->queue.take_ahead(places, exactly))
    session.queue_marks.wait_for_places(StreamState::queue_of(*resolved.state), places,
                                        {stream_context_id(stream), resolved.id});
  if (session.observers.any(Observers::kHeldStreams))
    wait_behind_host_functions(session, stream_context_id(stream), resolved, places - 1);
}

// First of all: what follows takes locks that a fetch needs.
void keep_callers_stack_open(Session& session) {
  if (session.observers.any(Observers::kGatedMemory)) keep_stack_open(session);
}

}  // namespace

bool BeingSent::begin(const ResolvedStream& stream) {
  stream_ = *stream.state;
  stream_->queue.begin_sending();
  return stream_->queue.take_exactly(&position_);
}

void BeingSent::enter(Session& session, const ResolvedStream& stream) {
  if (HostCalls::on_this_thread()) return;
  of_ = order_of(stream);
  session.host_turns.enter(stream_->turns, of_, [&] { return session.lost.load(); });
  turns_ = &session.host_turns;
  rpc::FrameSent::expect([](void* of) { static_cast<BeingSent*>(of)->sent(); }, this);
}

void BeingSent::give_back() { stream_->queue.give_back(position_); }

void BeingSent::sent() {
  if (turns_ != nullptr) std::exchange(turns_, nullptr)->sent(stream_->turns, of_);
}

void BeingSent::end() {
  if (turns_ != nullptr) rpc::FrameSent::forget();
  sent();
  stream_->queue.end_sending();
}

Submission::Submission(Session& session, uint16_t context, CUstream stream, unsigned needs)
    : session_(session) {
  // Managed memory first: what it holds may show further host memory to the device.
  if ((needs & kHostMemory) != 0 && session.observers.any(Observers::kManagedMemory)) [[unlikely]]
    use_managed_memory();
  if ((needs & kHostMemory) != 0 && session.observers.any(Observers::kMirrors)) [[unlikely]]
    use_host_memory(stream);
  if (result_ != CUDA_SUCCESS) return;
  ResolvedStream resolved;
  result_ = resolve_stream(session, stream, &resolved);
  stream_ = resolved.id;
  if ((needs & kPassing) != 0 && resolved.id == kLegacyStreamId &&
      session.observers.any(Observers::kFunctionsEver))
    return;
  if ((needs & kQueuePlace) != 0 && result_ == CUDA_SUCCESS) take_place(context, stream, resolved);
}

// A place in the driver's queue, for work that is about to be sent in `context` (wire id). May wait
// until the GPU has got on with the stream (stream_queue.h), and while functions of the application
// hold streams (queue_limit.h).
void Submission::take_place(uint16_t context, CUstream stream, const ResolvedStream& resolved) {
  if (resolved.state == nullptr) return;
  if (session_.observers.any(Observers::kFunctionsEver)) [[unlikely]]
    return take_counted_place(context, stream, resolved);
  const bool has_room = (*resolved.state)->queue.take();
  const Observers::Set observers = session_.observers.all();
  if (!has_room || (observers & (Observers::kHeldStreams | Observers::kFunctionsEver)) != 0)
      [[unlikely]]
    wait_for_place(context, stream, resolved, has_room);
}

// Once there was a function. What is being sent may come behind functions that are sent meanwhile,
// and must not be taken for done (HostTurns).
void Submission::take_counted_place(uint16_t context, CUstream stream,
                                    const ResolvedStream& resolved) {
  const bool has_room = sending_.begin(resolved);
  wait_for_place(context, stream, resolved, has_room);
}

void Submission::wait_for_place(uint16_t context, CUstream stream, const ResolvedStream& resolved,
                                bool has_room) {
  if (!has_room) wait_for_room(session_, stream, resolved);
  if (session_.observers.any(Observers::kHeldStreams))
    wait_behind_host_functions(session_, context, resolved, 1);
  if (!session_.observers.any(Observers::kFunctionsEver)) return;
  // The first function came meanwhile, and with it a mark, perhaps: counted once more.
  if (!sending_.begun()) (void)sending_.begin(resolved);
  sending_.enter(session_, resolved);
}

CUresult take_places(Session& session, uint64_t places, CUstream stream) {
  if (places <= 1) return CUDA_SUCCESS;
  ResolvedStream resolved;
  CUresult result = resolve_stream(session, stream, &resolved);
  // A driver takes such work when nothing is ahead of it in the stream, not even host functions,
  // which take no places.
  if (result == CUDA_SUCCESS && places > StreamQueue::kMost &&
      session.observers.any(Observers::kHeldStreams))
    result = StreamMark(session, stream).wait();
  if (result == CUDA_SUCCESS) {
    const uint64_t most = std::min<uint64_t>(places, StreamQueue::kMost);
    take_places_ahead(session, stream, resolved, static_cast<uint32_t>(most));
  }
  return result;
}

Submission::Submission(Session& session, CUstream stream) : session_(session) {
  if (session.observers.any(Observers::kMirrors)) [[unlikely]]
    use_host_memory(stream);
}

Submission::Submission(Session& session) : session_(session) {
  if (session.observers.any(Observers::kMirrors)) [[unlikely]]
    use_host_memory();
}

void Submission::use_host_memory() {
  keep_callers_stack_open(session_);
  // Counted first: from its push on, the work may change what a pull has to bring.
  session_.pages.begin_work();
  counted_ = true;
  result_ = before_wait(session_);
}

void Submission::use_host_memory(CUstream stream) {
  if (covered == &session_) return;
  use_host_memory();
  if (result_ == CUDA_SUCCESS && session_.observers.any(Observers::kUnseenDeliveries))
    result_ = wait_for_deliveries(session_, stream);
  if (covered != nullptr) return;
  covered = &session_;
  covers_ = true;
}

void Submission::use_managed_memory() {
  if (result_ != CUDA_SUCCESS || ManagedMemory::is_own_work()) return;
  session_.managed.begin_work();
  managed_ = true;
  result_ = session_.managed.give();
}

void Submission::end_managed_use() { session_.managed.end_work(); }

void Submission::end_use() {
  session_.pages.end_work();
  if (covers_) covered = nullptr;
}

Synchronisation::Synchronisation(Session& session, uint16_t context, Of of, CUstream stream)
    : session_(session) {
  keep_callers_stack_open(session);
  if (of == Of::kContext) {
    if (const Context* const all = session.find_context(context)) state_ = all->legacy_stream;
    if (session.observers.any(Observers::kMirrors)) mark_ = idle_mark(session);
    if (session.observers.any(Observers::kManagedMemory) && session.contexts.activated() == 1)
      managed_mark_ = session.managed.mark();
  }
  if (covered != &session) result_ = before_wait(session);
  if (of == Of::kStream && result_ == CUDA_SUCCESS) {
    ResolvedStream resolved;
    result_ = resolve_stream(session, stream, &resolved);
    stream_ = resolved.id;
    if (resolved.state != nullptr) state_ = *resolved.state;
  }
  if (state_ != nullptr) position_ = state_->queue.covered_position();
}

CUresult Synchronisation::finish() {
  if (state_ != nullptr) state_->queue.done(position_);
  if (session_.observers.any(Observers::kManagedMemory)) [[unlikely]]
    session_.managed.work_is_done(managed_mark_);
  return after_synchronisation(session_, mark_);
}

CUresult await_stream(Session& session, uint16_t context, CUstream stream) {
  return synchronise(session, context, Synchronisation::Of::kStream, stream,
                     [&](uint64_t id) { return wire::cuStreamSynchronize(session, context, id); });
}

CUresult await_context(Session& session, uint16_t context) {
  return synchronise(session, context, Synchronisation::Of::kContext, nullptr,
                     [&](uint64_t) { return wire::cuCtxSynchronize(session, context); });
}

}  // namespace fargpu::client

#include "client/entry/streams.h"

#include <vector>

#include "client/entry/call.h"
#include "client/entry/new_stream.h"
#include "client/process/process.h"
#include "client/process/session.h"
#include "client/process/watchdog.h"
#include "common/base/late_thread_local.h"
#include "generated/client/wire/stream.h"

namespace fargpu::client {
namespace {

thread_local bool per_thread_mode = false;

// The hidden streams of one thread. Destroyed with it; then the streams go too, if there is still
// somebody to tell.
class HiddenStreams {
 public:
  ~HiddenStreams() {
    if (Process::get().state() != ProcessState::kReady) return;
    for (const HiddenStream& hidden : streams_) {
      if (!hidden.context->usable() || hidden.epoch != hidden.context->epoch.load()) continue;
      // A forked child does not have its parent's sessions.
      Session* session = Process::get().session(rpc::handle_session(hidden.stream));
      if (session != hidden.context->session) continue;
      if (!is_live(*session, rpc::HandleKind::kStream, hidden.stream)) continue;
      if (wire::cuStreamDestroy_v2(*session, hidden.context->wire_id, hidden.stream) ==
          CUDA_SUCCESS)
        handle_destroyed(*session, hidden.stream);
    }
  }

  CUresult get(Context& context, uint64_t* id) {
    const uint32_t epoch = context.epoch.load(std::memory_order_relaxed);
    for (const HiddenStream& hidden : streams_) {
      if (hidden.context == &context && hidden.epoch == epoch) {
        *id = hidden.stream;
        return CUDA_SUCCESS;
      }
    }
    CUstream stream = nullptr;
    const CUresult result = make_stream(
        *context.session, context, {.flags = CU_STREAM_DEFAULT}, &stream, [&](uint64_t id) {
          return wire::cuStreamCreate(*context.session, context.wire_id, id, CU_STREAM_DEFAULT);
        });
    if (result != CUDA_SUCCESS) return result;
    streams_.push_back({&context, epoch, reinterpret_cast<uint64_t>(stream)});
    *id = streams_.back().stream;
    return CUDA_SUCCESS;
  }

 private:
  struct HiddenStream {
    Context* context;
    uint32_t epoch;
    uint64_t stream;
  };
  std::vector<HiddenStream> streams_;
};

// Of this thread and the current context. Apart from resolve_stream(), so that that needs no more
// than its registers.
[[gnu::noinline]] CUresult find_hidden_stream(const Session& session, uint64_t* id) {
  if (current_green() != nullptr) return CUDA_ERROR_INVALID_HANDLE;  // it has no such stream
  Context* context = current_context();
  if (context == nullptr || context->session != &session) return CUDA_ERROR_INVALID_CONTEXT;
  return LateThreadLocal<HiddenStreams>::get().get(*context, id);
}

}  // namespace

PerThreadDefaultStream::PerThreadDefaultStream() : before_(per_thread_mode) {
  per_thread_mode = true;
}
PerThreadDefaultStream::~PerThreadDefaultStream() { per_thread_mode = before_; }

bool per_thread_default_stream() { return per_thread_mode; }

CUresult resolve_stream(Session& session, CUstream stream, ResolvedStream* resolved) {
  if (watchdog::enabled()) [[unlikely]]
    watchdog::note_stream(stream);
  if (is_legacy(stream)) {
    const Context* context = named_current();
    *resolved = {kLegacyStreamId, context == nullptr ? nullptr : &context->legacy_stream};
    return CUDA_SUCCESS;
  }
  uint64_t id = reinterpret_cast<uint64_t>(stream);
  if (stream == nullptr || stream == CU_STREAM_PER_THREAD) {
    if (const CUresult result = find_hidden_stream(session, &id); result != CUDA_SUCCESS)
      return result;
  }
  const Object* found = session.find(rpc::HandleKind::kStream, id);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const Context* const green = static_cast<const Stream*>(found)->green;
  if (green != nullptr && !green->usable()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *resolved = {id, &static_cast<const Stream*>(found)->state};
  return CUDA_SUCCESS;
}

HostTurns::Of order_of(const ResolvedStream& stream) {
  if (stream.id == kLegacyStreamId) return HostTurns::Of::kLegacy;
  return (*stream.state)->non_blocking.load(std::memory_order_relaxed) ? HostTurns::Of::kApart
                                                                       : HostTurns::Of::kBlocking;
}

std::shared_ptr<void> make_turns(Session& session, const ResolvedStream& resolved) {
  if (!session.observers.any(Observers::kFunctionsEver))
    session.observers.add(Observers::kFunctionsEver);
  return session.host_turns.make(StreamState::turns_of(*resolved.state), order_of(resolved));
}

const StreamQueue* legacy_queue_beside(CUstream stream, const ResolvedStream& resolved) {
  if (order_of(resolved) != HostTurns::Of::kBlocking) return nullptr;
  const Context* const own = context_of(stream);
  return own == nullptr ? nullptr : &own->legacy_stream->queue;
}

void follow_legacy(Session& session, CUstream stream) {
  if (const Context* const own = context_of(stream); own != nullptr)
    session.queue_marks.follow(StreamState::queue_of(own->legacy_stream),
                               {own->wire_id, kLegacyStreamId});
}

CUresult stream_to_wire(Session& session, CUstream stream, uint64_t* id) {
  ResolvedStream resolved;
  const CUresult result = resolve_stream(session, stream, &resolved);
  *id = resolved.id;
  return result;
}

StreamMark::StreamMark(Session& session, CUstream stream) : session_(session) {
  ResolvedStream resolved;
  const CUresult result = resolve_stream(session, stream, &resolved);
  mark_ = result == CUDA_SUCCESS ? session.queue_marks.set({stream_context_id(stream), resolved.id})
                                 : std::make_shared<StreamQueue>(1);  // reached
}

CUresult StreamMark::wait() {
  if (!session_.queue_marks.wait_until([this] { return mark_->is_reached(); }))
    return from_status(session_.channel().why_lost());
  session_.channel().see_sent();
  return CUDA_SUCCESS;
}

DrainScope::DrainScope(Session& session, uint16_t context)
    : session_(session),
      device_(device_key(context == 0 ? nullptr : session.find_context(context))) {
  session_.host_calls.begin_load(device_);
}
DrainScope::~DrainScope() { session_.host_calls.end_load(device_); }

BriefDrainScope::BriefDrainScope(Session& session, uint16_t context)
    : session_(session),
      device_(device_key(context == 0 ? nullptr : session.find_context(context))),
      began_(session.host_calls.begin_short_drain(device_)) {}
BriefDrainScope::~BriefDrainScope() {
  if (began_) session_.host_calls.end_load(device_);
}

Context* context_of(CUstream stream) {
  if (is_default_stream(stream)) return current_context();
  const Tables* const tables = Process::get().tables();
  if (tables == nullptr) return nullptr;
  const Object* found =
      tables->handles.find(rpc::HandleKind::kStream, reinterpret_cast<uint64_t>(stream));
  return found == nullptr ? nullptr : found->context;
}

Context* green_of(CUstream stream) {
  if (is_default_stream(stream)) return current_green();
  const Tables* const tables = Process::get().tables();
  if (tables == nullptr) return nullptr;
  const Object* found =
      tables->handles.find(rpc::HandleKind::kStream, reinterpret_cast<uint64_t>(stream));
  return found == nullptr ? nullptr : static_cast<const Stream*>(found)->green;
}

}  // namespace fargpu::client

// Streams: whose they are is known here; callbacks run here.
#include "client/capture/captures.h"
#include "client/entry/function_order.h"
#include "client/entry/new_stream.h"
#include "client/manual/common.h"
#include "client/manual/green_context.h"
#include "client/manual/stream/stream_priority.h"
#include "client/manual/stream/stream_wait.h"
#include "client/servers/held_streams.h"
#include "client/transfer/host_functions.h"
#include "generated/client/wire/event.h"
#include "schema/support/cuda_rules.h"

namespace fargpu::client {
namespace {

// What captures have to know of a stream that was made.
CUresult note_made(Session& session, const CUstream* stream, unsigned flags, int priority,
                   CUresult result) {
  if (result == CUDA_SUCCESS) note_priority(*stream, priority);
  const bool blocks = (flags & CU_STREAM_NON_BLOCKING) == 0 && current_green() == nullptr;
  if (result != CUDA_SUCCESS || blocks) return result;
  const auto* const record = static_cast<const Stream*>(
      session.find(rpc::HandleKind::kStream, reinterpret_cast<uint64_t>(*stream)));
  if (record != nullptr) record->state->non_blocking = true;
  return result;
}

// The context in which the stream lives, which is no green one.
CUresult find_owner(CUstream stream, Context** context) {
  const Context* const green = green_of(stream);
  if (green != nullptr && !green->usable()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  const bool per_thread =
      stream == CU_STREAM_PER_THREAD || (stream == nullptr && per_thread_default_stream());
  *context = green != nullptr && per_thread ? nullptr : context_of(stream);
  return *context == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

// Whether the event has happened, asked for the legacy stream while functions run: a driver makes
// nothing of such a wait, and functions in other streams do not count beside it (HostTurns).
bool need_not_wait(const CallTarget& target, CUstream stream, CUevent event) {
  Session& session = target.session;
  if (!session.observers.any(Observers::kHeldStreams)) return false;
  ResolvedStream resolved;
  return resolve_stream(session, stream, &resolved) == CUDA_SUCCESS &&
         resolved.id == kLegacyStreamId &&
         wire::cuEventQuery(session, target.context, reinterpret_cast<uint64_t>(event)) ==
             CUDA_SUCCESS;
}

}  // namespace

CUresult manual_cuStreamCreate(CUstream* phStream, unsigned int Flags) {
  if (phStream == nullptr || (Flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Session& session = CallTarget::of_current().session;
  const Context& context = *named_current();
  const NewStream kind{schema::kPlainStream, Flags, 0};
  return note_made(session, phStream, Flags, 0,
                   make_stream(session, context, kind, phStream, [&](uint64_t id) {
                     return wire::cuStreamCreate(session, context.wire_id, id, Flags);
                   }));
}

CUresult manual_cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags, int priority) {
  if (phStream == nullptr || (flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Session& session = CallTarget::of_current().session;
  const Context& context = *named_current();
  // A priority outside the device's range is clamped by the driver.
  const NewStream kind{schema::kStreamWithPriority, flags, priority};
  const CUresult result = make_stream(session, context, kind, phStream, [&](uint64_t id) {
    return wire::cuStreamCreateWithPriority(session, context.wire_id, id, flags, priority);
  });
  return note_made(session, phStream, flags, priority, result);
}

CUresult manual_cuStreamDestroy_v2(CUstream hStream) {
  const CallTarget target = CallTarget::of(hStream);
  const CUresult result = call_cuStreamDestroy_v2(target.session, target.context, hStream);
  if (result == CUDA_SUCCESS) capture::end_abandoned_graphs();
  return result;
}

CUresult manual_cuGreenCtxStreamCreate(CUstream* phStream, CUgreenCtx greenCtx, unsigned int flags,
                                       int priority) {
  if (phStream == nullptr || flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  Context* const green = find_green(greenCtx);
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Session& session = *green->session;
  const ContextScope scope(green);
  const NewStream kind{schema::kStreamOfGreenContext, flags, priority};
  const CUresult result = make_stream(session, *green, kind, phStream, [&](uint64_t id) {
    return wire::cuGreenCtxStreamCreate(session, green->wire_id, id, green->green, flags, priority);
  });
  return note_made(session, phStream, flags, priority, result);
}

CUresult manual_cuStreamGetDevice(CUstream hStream, CUdevice* device) {
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Context* context = context_of(hStream);
  if (context == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *device = context->device;
  return CUDA_SUCCESS;
}

CUresult manual_cuStreamGetCtx(CUstream hStream, CUcontext* pctx) {
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  if (const CUresult result = find_owner(hStream, &context); result != CUDA_SUCCESS) return result;
  Context* const green = green_of(hStream);
  *pctx = green != nullptr ? green->handle() : context->handle();
  return CUDA_SUCCESS;
}

CUresult manual_cuStreamGetCtx_v2(CUstream hStream, CUcontext* pCtx, CUgreenCtx* pGreenCtx) {
  if (pCtx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  if (const CUresult result = find_owner(hStream, &context); result != CUDA_SUCCESS) return result;
  *pCtx = context->handle();
  return pGreenCtx == nullptr ? CUDA_SUCCESS : manual_cuStreamGetGreenCtx(hStream, pGreenCtx);
}

CUresult manual_cuStreamGetGreenCtx(CUstream hStream, CUgreenCtx* phCtx) {
  if (phCtx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  if (const CUresult result = find_owner(hStream, &context); result != CUDA_SUCCESS) return result;
  const Context* const green = green_of(hStream);
  *phCtx = green == nullptr ? nullptr : reinterpret_cast<CUgreenCtx>(green->green);
  return CUDA_SUCCESS;
}

CUresult manual_cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void* userData,
                                    unsigned int flags) {
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return put_into_stream(CallTarget::of(hStream),
                         {.callback = callback, .user_data = userData, .stream = hStream});
}

CUresult manual_cuStreamSynchronize(CUstream hStream) {
  const CallTarget target = CallTarget::of(hStream);
  return wait_for_stream(target.session, target.context, hStream);
}

CUresult manual_cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
  if (capture::any_event()) [[unlikely]] {
    if (const auto joined = capture::join(hStream, hEvent)) return *joined;
  }
  const CallTarget target = CallTarget::of(hStream);
  if (is_event_of_another_server(hStream, hEvent)) [[unlikely]] {
    // Otherwise the driver judges them.
    if (Flags == CU_EVENT_WAIT_EXTERNAL) return CUDA_ERROR_ILLEGAL_STATE;  // for captures only
    if (Flags != CU_EVENT_WAIT_DEFAULT) return CUDA_ERROR_INVALID_VALUE;
    return wait_for_other_server(hStream, hEvent);
  }
  const Object* event =
      target.session.find(rpc::HandleKind::kEvent, reinterpret_cast<uint64_t>(hEvent));
  if (event != nullptr && event->context != context_of(hStream))
    target.session.host_calls.join_contexts();
  if (event != nullptr && Flags == CU_EVENT_WAIT_DEFAULT && need_not_wait(target, hStream, hEvent))
    return CUDA_SUCCESS;
  if (event != nullptr) wait_behind(target.session, hStream, *static_cast<const Event*>(event));
  return flush_interprocess(
      target.session, hEvent,
      call_cuStreamWaitEvent(target.session, target.context, hStream, hEvent, Flags));
}

}  // namespace fargpu::client

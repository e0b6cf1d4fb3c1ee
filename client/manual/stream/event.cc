// Events: wrong flags are errors at once, and waits across contexts concern loads in both. An event
// may have a place in a capture: then there is nothing to ask the server.
#include "client/capture/captures.h"
#include "client/entry/function_order.h"
#include "client/manual/common.h"
#include "client/manual/green_context.h"
#include "client/transfer/ordered_copy.h"

namespace fargpu::client {
namespace {

// `ends`: whether the question ends the capture.
CUresult check(CUevent event, bool ends) {
  return capture::any_event() ? capture::check_event(event, ends) : CUDA_SUCCESS;
}

Event* find_event(Session& session, CUevent event) {
  return static_cast<Event*>(
      session.find(rpc::HandleKind::kEvent, reinterpret_cast<uint64_t>(event)));
}

// It is recorded where nothing is captured. Null: there is no such event.
Event* note_record(Session& session, CUevent event) {
  Event* const found = find_event(session, event);
  if (found != nullptr) capture::note_record(*found);
  return found;
}
const Event* note_record(Session& session, CUevent event, CUstream stream) {
  Event* const found = note_record(session, event);
  if (found != nullptr) record_behind(session, stream, *found);
  return found;
}

// A process that waits for the event, or is notified after it, reads bytes that were copied to the
// host before the event. Only this process knows when they have arrived, so the stream waits for
// them.
CUresult before_record(Session& session, const Event* event, CUstream stream) {
  if (event == nullptr || !event->interprocess.load(std::memory_order_relaxed)) [[likely]]
    return CUDA_SUCCESS;
  return wait_for_deliveries(session, stream);
}

}  // namespace

CUresult manual_cuEventCreate(CUevent* phEvent, unsigned int Flags) {
  constexpr unsigned kFlags =
      CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  if (phEvent == nullptr || (Flags & ~kFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  const bool interprocess = (Flags & CU_EVENT_INTERPROCESS) != 0;
  if (interprocess && (Flags & CU_EVENT_DISABLE_TIMING) == 0) return CUDA_ERROR_INVALID_VALUE;
  const CallTarget target = CallTarget::of_current();
  const CUresult result = call_cuEventCreate(target.session, target.context, phEvent, Flags);
  if (result != CUDA_SUCCESS) return result;
  if (Event* const event = find_event(target.session, *phEvent)) {
    event->interprocess = interprocess;
    event->is_timed = (Flags & CU_EVENT_DISABLE_TIMING) == 0;
  }
  return CUDA_SUCCESS;
}

CUresult manual_cuEventRecord(CUevent hEvent, CUstream hStream) {
  const CallTarget target = CallTarget::of(hStream);
  const Event* const event = note_record(target.session, hEvent, hStream);
  if (const CUresult result = before_record(target.session, event, hStream); result != CUDA_SUCCESS)
    return result;
  return flush_interprocess(target.session, event,
                            call_cuEventRecord(target.session, target.context, hEvent, hStream));
}

CUresult manual_cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
  const CallTarget target = CallTarget::of(hStream);
  if (flags == CU_EVENT_RECORD_DEFAULT) {
    const Event* const event = note_record(target.session, hEvent, hStream);
    if (const CUresult result = before_record(target.session, event, hStream);
        result != CUDA_SUCCESS)
      return result;
  }
  return flush_interprocess(
      target.session, hEvent,
      call_cuEventRecordWithFlags(target.session, target.context, hEvent, hStream, flags));
}

CUresult manual_cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent) {
  const CallTarget target = CallTarget::of(hCtx);
  note_record(target.session, hEvent);
  return flush_interprocess(target.session, hEvent,
                            call_cuCtxRecordEvent(target.session, target.context, hCtx, hEvent));
}

CUresult manual_cuEventQuery(CUevent hEvent) {
  if (const CUresult result = check(hEvent, true); result != CUDA_SUCCESS) return result;
  const CallTarget target = CallTarget::of(hEvent);
  return call_cuEventQuery(target.session, target.context, hEvent);
}

CUresult manual_cuEventSynchronize(CUevent hEvent) {
  if (const CUresult result = check(hEvent, true); result != CUDA_SUCCESS) return result;
  const CallTarget target = CallTarget::of(hEvent);
  return call_cuEventSynchronize(target.session, target.context, hEvent);
}

CUresult manual_cuEventElapsedTime_v2(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  for (const CUevent event : {hStart, hEnd})
    if (const CUresult result = check(event, false); result != CUDA_SUCCESS) return result;
  const CallTarget target = CallTarget::of(hStart);
  return call_cuEventElapsedTime_v2(target.session, target.context, pMilliseconds, hStart, hEnd);
}

CUresult manual_cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent) {
  if (const CUresult result = check(hEvent, true); result != CUDA_SUCCESS) return result;
  const CallTarget target = CallTarget::of(hCtx);
  const Object* event =
      target.session.find(rpc::HandleKind::kEvent, reinterpret_cast<uint64_t>(hEvent));
  if (event != nullptr && event->context != home_of(target.session.contexts.find(hCtx)))
    target.session.host_calls.join_contexts();
  target.session.host_calls.everything_follows();
  return flush_interprocess(target.session, hEvent,
                            call_cuCtxWaitEvent(target.session, target.context, hCtx, hEvent));
}

CUresult manual_cuGreenCtxRecordEvent(CUgreenCtx hCtx, CUevent hEvent) {
  Context* const green = find_green(hCtx);
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (capture::any() && capture::ends_in_green(green)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const Object* const event =
      green->session->find(rpc::HandleKind::kEvent, reinterpret_cast<uint64_t>(hEvent));
  if (event != nullptr && home_of(event->context) != home_of(green))
    return CUDA_ERROR_INVALID_HANDLE;
  return manual_cuCtxRecordEvent(green->handle(), hEvent);
}

CUresult manual_cuGreenCtxWaitEvent(CUgreenCtx hCtx, CUevent hEvent) {
  Context* const green = find_green(hCtx);
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (capture::any() && capture::ends_in_green(green)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return manual_cuCtxWaitEvent(green->handle(), hEvent);
}

}  // namespace fargpu::client

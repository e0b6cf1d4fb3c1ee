// Events: wrong flags are errors at once, and waits across contexts concern loads in both.
#include "client/manual/common.h"

namespace fargpu::client {

CUresult manual_cuEventCreate(CUevent* phEvent, unsigned int Flags) {
  constexpr unsigned kFlags =
      CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  if (phEvent == nullptr || (Flags & ~kFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((Flags & CU_EVENT_INTERPROCESS) != 0) {
    // Without timing only, as natively; and no other process could open it.
    return (Flags & CU_EVENT_DISABLE_TIMING) == 0 ? CUDA_ERROR_INVALID_VALUE
                                                  : CUDA_ERROR_NOT_SUPPORTED;
  }
  const CallTarget target = CallTarget::of_current();
  return call_cuEventCreate(target.session, target.context, phEvent, Flags);
}

CUresult manual_cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent) {
  const CallTarget target = CallTarget::of(hCtx);
  const Object* event =
      target.session.find(rpc::HandleKind::kEvent, reinterpret_cast<uint64_t>(hEvent));
  if (event != nullptr && event->context != target.session.contexts.find(hCtx))
    target.session.host_calls.join_contexts();
  return call_cuCtxWaitEvent(target.session, target.context, hCtx, hEvent);
}

}  // namespace fargpu::client

// Events: to know that one is complete is a point where mapped memory becomes equal.
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
  const Here here = Here::of_current();
  return call_cuEventCreate(here.session, here.context, phEvent, Flags);
}

CUresult manual_cuEventQuery(CUevent hEvent) {
  const Here here = Here::of(hEvent);
  if (const CUresult result = before_wait(here.session); result != CUDA_SUCCESS) return result;
  const CUresult result = call_cuEventQuery(here.session, here.context, hEvent);
  return result == CUDA_SUCCESS ? after_synchronisation(here.session) : result;
}

CUresult manual_cuEventElapsedTime_v2(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  const Here here = Here::of(hStart);
  if (const CUresult result = before_wait(here.session); result != CUDA_SUCCESS) return result;
  const CUresult result =
      call_cuEventElapsedTime_v2(here.session, here.context, pMilliseconds, hStart, hEnd);
  // Both events are complete then, and what came before them.
  return result == CUDA_SUCCESS ? after_synchronisation(here.session) : result;
}

CUresult manual_cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent) {
  const Here here = Here::of(hCtx);
  const Object* event =
      here.session.find(rpc::HandleKind::kEvent, reinterpret_cast<uint64_t>(hEvent));
  if (event != nullptr && event->context != here.session.contexts.find(hCtx))
    here.session.host_calls.join_contexts();
  return call_cuCtxWaitEvent(here.session, here.context, hCtx, hEvent);
}

CUresult manual_cuEventSynchronize(CUevent hEvent) {
  const Here here = Here::of(hEvent);
  if (const CUresult result = before_wait(here.session); result != CUDA_SUCCESS) return result;
  const CUresult result = call_cuEventSynchronize(here.session, here.context, hEvent);
  return result == CUDA_SUCCESS ? after_synchronisation(here.session) : result;
}

}  // namespace fargpu::client

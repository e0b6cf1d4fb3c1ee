// Streams: whose they are is known here; callbacks run here; graphs are not captured.
#include "client/manual/common.h"
#include "client/transfer/held_streams.h"

namespace fargpu::client {
namespace {

// A live stream or a default one.
CUresult check(CUstream stream) {
  return context_of(stream) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

}  // namespace

CUresult manual_cuStreamCreate(CUstream* phStream, unsigned int Flags) {
  if (phStream == nullptr || (Flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CallTarget target = CallTarget::of_current();
  return call_cuStreamCreate(target.session, target.context, phStream, Flags);
}

CUresult manual_cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags, int priority) {
  if (phStream == nullptr || (flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CallTarget target = CallTarget::of_current();
  // A priority outside the device's range is clamped by the driver.
  return call_cuStreamCreateWithPriority(target.session, target.context, phStream, flags, priority);
}

CUresult manual_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  if (mode == nullptr || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  std::swap(capture_mode, *mode);
  return CUDA_SUCCESS;
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
  Context* context = context_of(hStream);
  if (context == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *pctx = context->handle();
  return CUDA_SUCCESS;
}

CUresult manual_cuStreamGetCtx_v2(CUstream hStream, CUcontext* pCtx, CUgreenCtx* pGreenCtx) {
  if (pGreenCtx != nullptr) *pGreenCtx = nullptr;
  return manual_cuStreamGetCtx(hStream, pCtx);
}

CUresult manual_cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void* userData,
                                    unsigned int flags) {
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return put_into_stream(CallTarget::of(hStream),
                         {.callback = callback, .user_data = userData, .stream = hStream});
}

CUresult manual_cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
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
  return call_cuStreamWaitEvent(target.session, target.context, hStream, hEvent, Flags);
}

CUresult manual_cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus* captureStatus) {
  if (captureStatus == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *captureStatus = CU_STREAM_CAPTURE_STATUS_NONE;
  return check(hStream);
}

CUresult manual_cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                       cuuint64_t* id_out) {
  if (id_out != nullptr) *id_out = 0;
  return manual_cuStreamIsCapturing(hStream, captureStatus_out);
}

CUresult manual_cuStreamGetCaptureInfo_v2(CUstream hStream,
                                          CUstreamCaptureStatus* captureStatus_out,
                                          cuuint64_t* id_out, CUgraph* graph_out,
                                          const CUgraphNode** dependencies_out,
                                          size_t* numDependencies_out) {
  if (graph_out != nullptr) *graph_out = nullptr;
  if (dependencies_out != nullptr) *dependencies_out = nullptr;
  if (numDependencies_out != nullptr) *numDependencies_out = 0;
  return manual_cuStreamGetCaptureInfo(hStream, captureStatus_out, id_out);
}

CUresult manual_cuStreamGetCaptureInfo_v3(CUstream hStream,
                                          CUstreamCaptureStatus* captureStatus_out,
                                          cuuint64_t* id_out, CUgraph* graph_out,
                                          const CUgraphNode** dependencies_out,
                                          const CUgraphEdgeData** edgeData_out,
                                          size_t* numDependencies_out) {
  if (edgeData_out != nullptr) *edgeData_out = nullptr;
  return manual_cuStreamGetCaptureInfo_v2(hStream, captureStatus_out, id_out, graph_out,
                                          dependencies_out, numDependencies_out);
}

}  // namespace fargpu::client

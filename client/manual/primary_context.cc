// Primary contexts: counted here; the worker hears of the first retain and the last release.
#include "client/entry/object_ends.h"
#include "client/manual/common.h"
#include "client/manual/context_end.h"
#include "client/process/process.h"

namespace fargpu::client {
namespace {

CUresult find(CUdevice dev, Context** context) {
  *context = Process::get().tables()->contexts.primary(dev);
  return *context == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

}  // namespace

CUresult manual_cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  if (const CUresult result = find(dev, &context); result != CUDA_SUCCESS) return result;
  std::lock_guard lock(context->mutex);
  if (!context->usable()) {
    const unsigned flags = context->flags.load();
    if (const CUresult result = call_fgPrimaryRetain(*context->session, 0, dev, flags);
        result != CUDA_SUCCESS) {
      return result;
    }
    context->session->contexts.activate(*context, flags);
  }
  ++context->retained;
  *pctx = context->handle();
  return CUDA_SUCCESS;
}

CUresult manual_cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  Context* context = nullptr;
  if (const CUresult result = find(dev, &context); result != CUDA_SUCCESS) return result;
  {
    std::lock_guard lock(context->mutex);
    if (context->retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (context->retained > 1) {
      --context->retained;
      return CUDA_SUCCESS;
    }
  }
  begin_context_end(*context);
  std::lock_guard lock(context->mutex);
  // Another thread may have retained it meanwhile.
  if (context->retained == 0 || --context->retained != 0) return CUDA_SUCCESS;
  const CUresult result =
      context->usable() ? call_fgPrimaryRelease(*context->session, 0, dev, 0) : CUDA_SUCCESS;
  end_context(*context, ContextState::kInactive);
  return result;
}

CUresult manual_cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
  Context* context = nullptr;
  if (const CUresult result = find(dev, &context); result != CUDA_SUCCESS) return result;
  const unsigned scheduling = flags & CU_CTX_SCHED_MASK;
  if ((flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) != 0 ||
      (scheduling & (scheduling - 1)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  context->flags.store(flags);
  return CUDA_SUCCESS;
}

CUresult manual_cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int* flags, int* active) {
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  if (const CUresult result = find(dev, &context); result != CUDA_SUCCESS) return result;
  *flags = context->flags.load(std::memory_order_relaxed);
  *active = context->usable() ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult manual_cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  Context* context = nullptr;
  if (const CUresult result = find(dev, &context); result != CUDA_SUCCESS) return result;
  if (!context->session->contexts.greens_of(*context).empty()) return CUDA_ERROR_NOT_PERMITTED;
  begin_context_end(*context);
  std::lock_guard lock(context->mutex);
  if (!context->usable()) return CUDA_SUCCESS;
  const CUresult result = call_fgPrimaryRelease(*context->session, 0, dev, 1);
  end_context(*context, ContextState::kInactive);
  return result;
}

}  // namespace fargpu::client

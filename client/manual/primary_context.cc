// Primary contexts: counted here; the worker hears of the first retain and the last release.
#include "client/entry/object_ends.h"
#include "client/interop/context_storage.h"
#include "client/manual/common.h"
#include "client/process/process.h"
#include "client/transfer/held_work.h"

namespace fargpu::client {
namespace {

CUresult find(CUdevice dev, Context** context) {
  *context = Process::get().tables()->contexts.primary(dev);
  return *context == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

// The runtime's values of the context go first, while the context still works: their destructors
// may call. Other threads may retain the context meanwhile.
void prepare_end(Context& context) {
  interop::ContextStorage::get_instance().clear(&context);
  HeldWork::finish_in(context);
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
  prepare_end(*context);
  std::lock_guard lock(context->mutex);
  // Another thread may have retained it meanwhile.
  if (context->retained == 0 || --context->retained != 0) return CUDA_SUCCESS;
  if (context->usable()) before_context_ends(*context->session, *context);
  const CUresult result =
      context->usable() ? call_fgPrimaryRelease(*context->session, 0, dev, 0) : CUDA_SUCCESS;
  end_context(*context, ContextState::kInactive);
  return result;
}

CUresult manual_cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
  Context* context = nullptr;
  if (const CUresult result = find(dev, &context); result != CUDA_SUCCESS) return result;
  if ((flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) != 0) return CUDA_ERROR_INVALID_VALUE;
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
  prepare_end(*context);
  std::lock_guard lock(context->mutex);
  if (!context->usable()) return CUDA_SUCCESS;
  before_context_ends(*context->session, *context);
  const CUresult result = call_fgPrimaryRelease(*context->session, 0, dev, 1);
  end_context(*context, ContextState::kInactive);
  return result;
}

}  // namespace fargpu::client

// Contexts: the stack of each thread is the client's; creation and destruction are told to the
// worker.
#include "client/object/context.h"

#include "client/entry/object_ends.h"
#include "client/manual/common.h"
#include "client/manual/context_end.h"
#include "client/process/process.h"

namespace fargpu::client {
namespace {

constexpr unsigned kContextFlags = CU_CTX_FLAGS_MASK;

CUresult create(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  if (pctx == nullptr || (flags & ~kContextFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  Session* const of_device = Process::get().session_of_device(dev);
  if (of_device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  Session& session = *of_device;
  Context* context =
      session.contexts.create(dev, session.device(dev)->worker_ordinal, flags, session.owner());
  if (context == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  if (const CUresult result = call_fgContextCreate(session, 0, context->wire_id, dev, flags);
      result != CUDA_SUCCESS) {
    session.contexts.retire(*context, ContextState::kDestroyed);
    return result;
  }
  session.contexts.activate(*context, flags);
  push_context(context);
  *pctx = context->handle();
  return CUDA_SUCCESS;
}

// Of any session; nullptr: never made.
Context* find(CUcontext ctx) { return Process::get().tables()->contexts.find(ctx); }

// NULL: the current context.
CUresult resolve(CUcontext ctx, Context** context) {
  *context = ctx == nullptr ? named_current() : find(ctx);
  if (*context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return (*context)->state.load() == ContextState::kDestroyed ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                                              : CUDA_SUCCESS;
}

// For the functions that make a context current: a primary context that is not retained yet may be
// made current, a destroyed one not.
CUresult resolve_new_current(CUcontext ctx, Context** context) {
  if (ctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *context = find(ctx);
  if (*context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  // A green one may be gone already, as natively.
  return (*context)->state.load() == ContextState::kDestroyed && (*context)->home == nullptr
             ? CUDA_ERROR_INVALID_CONTEXT
             : CUDA_SUCCESS;
}

}  // namespace

CUresult manual_cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  return create(pctx, flags, dev);
}

CUresult manual_cuCtxCreate_v3(CUcontext* pctx, CUexecAffinityParam* paramsArray, int numParams,
                               unsigned int flags, CUdevice dev) {
  if (numParams != 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  (void)paramsArray;
  return create(pctx, flags, dev);
}

CUresult manual_cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams* ctxCreateParams,
                               unsigned int flags, CUdevice dev) {
  if (ctxCreateParams != nullptr) {
    if (ctxCreateParams->numExecAffinityParams != 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    if (ctxCreateParams->cigParams != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  }
  return create(pctx, flags, dev);
}

CUresult manual_cuCtxDestroy_v2(CUcontext ctx) {
  if (ctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = find(ctx);
  if (context == nullptr || context->primary || context->home != nullptr || !context->usable())
    return CUDA_ERROR_INVALID_CONTEXT;
  Session& session = *context->session;
  begin_context_end(*context);
  const CUresult result = wire::fgContextDestroy(session, 0, context->wire_id);
  end_context(*context, ContextState::kDestroyed);
  if (current_context() == context) pop_context();
  return result;
}

CUresult manual_cuCtxPushCurrent_v2(CUcontext ctx) {
  if (ctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  if (const CUresult result = resolve_new_current(ctx, &context); result != CUDA_SUCCESS)
    return result;
  push_context(context);
  return CUDA_SUCCESS;
}

CUresult manual_cuCtxPopCurrent_v2(CUcontext* pctx) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Context* context = pop_context();
  if (pctx != nullptr) *pctx = context->handle();
  return CUDA_SUCCESS;
}

CUresult manual_cuCtxSetCurrent(CUcontext ctx) {
  if (ctx == nullptr) {
    set_current_context(nullptr);
    return CUDA_SUCCESS;
  }
  Context* context = nullptr;
  if (const CUresult result = resolve_new_current(ctx, &context); result != CUDA_SUCCESS)
    return result;
  set_current_context(context);
  return CUDA_SUCCESS;
}

CUresult manual_cuCtxGetCurrent(CUcontext* pctx) {
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = named_current();
  *pctx = context == nullptr ? nullptr : context->handle();
  return CUDA_SUCCESS;
}

CUresult manual_cuCtxGetDevice(CUdevice* device) {
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = current_context();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *device = context->device;
  return CUDA_SUCCESS;
}

CUresult manual_cuCtxGetDevice_v2(CUdevice* device, CUcontext ctx) {
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  if (const CUresult result = resolve(ctx, &context); result != CUDA_SUCCESS) return result;
  *device = context->device;
  return CUDA_SUCCESS;
}

CUresult manual_cuCtxGetFlags(unsigned int* flags) {
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = current_context()->flags.load();
  return CUDA_SUCCESS;
}

CUresult manual_cuCtxSetFlags(unsigned int flags) {
  // How the host waits: of no effect, the client's own waiting decides.
  const unsigned scheduling = flags & CU_CTX_SCHED_MASK;  // one way at most
  if ((flags & ~kContextFlags) != 0 || (scheduling & (scheduling - 1)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  current_context()->flags.store(flags);
  return CUDA_SUCCESS;
}

CUresult manual_cuCtxGetId(CUcontext ctx, unsigned long long* ctxId) {
  if (ctxId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  if (const CUresult result = resolve(ctx, &context); result != CUDA_SUCCESS) return result;
  if (!context->usable()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *ctxId = context->unique_id.load();
  return CUDA_SUCCESS;
}

CUresult manual_cuCtxSynchronize() {
  const CallTarget target = CallTarget::of_current();
  return call_cuCtxSynchronize(target.session, named_current()->wire_id);
}

CUresult manual_cuCtxSynchronize_v2(CUcontext ctx) {
  Context* context = nullptr;
  if (const CUresult result = resolve(ctx, &context); result != CUDA_SUCCESS) return result;
  if (!context->usable()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (const int sticky = home_of(context)->sticky.load()) return static_cast<CUresult>(sticky);
  const CallTarget target =
      CallTarget::of(ctx);  // what it exposes must not get a context of another session
  const CUresult result = call_cuCtxSynchronize(target.session, context->wire_id);
  return result == CUDA_SUCCESS ? take_kept(*home_of(context)) : result;
}

CUresult manual_cuCtxGetApiVersion(CUcontext ctx, unsigned int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  // Unlike elsewhere, the driver does not tell a destroyed context from none.
  if (resolve(ctx, &context) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_CONTEXT;
  *version = 3020;  // the newest context ABI, as every driver since 3.2 says
  return CUDA_SUCCESS;
}

// Libraries ask for CIG_ENABLED whenever code is used for the first time.
CUresult manual_cuCtxGetLimit(size_t* pvalue, CUlimit limit) {
  Context& context = *current_context();
  const bool stays = limit == CU_LIMIT_CIG_ENABLED && pvalue != nullptr;
  if (const size_t known = context.cig_enabled.load(); stays && known != Context::kNotAsked) {
    *pvalue = known;
    return CUDA_SUCCESS;
  }
  const CallTarget target = CallTarget::of_current();
  const CUresult result = wire::cuCtxGetLimit(target.session, target.context, pvalue, limit);
  if (stays && result == CUDA_SUCCESS) context.cig_enabled.store(*pvalue);
  return result;
}

CUresult manual_cuCtxGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  const Device* device = Process::get().device(current_context()->device);
  if (leastPriority != nullptr) *leastPriority = device->least_priority;
  if (greatestPriority != nullptr) *greatestPriority = device->greatest_priority;
  return CUDA_SUCCESS;
}

CUresult manual_cuCtxAttach(CUcontext* pctx, unsigned int flags) {
  if (pctx == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *pctx = named_current()->handle();
  return CUDA_SUCCESS;
}

CUresult manual_cuCtxDetach(CUcontext ctx) {
  Context* context = find(ctx);
  return context == nullptr || context != named_current() ? CUDA_ERROR_INVALID_CONTEXT
                                                          : CUDA_SUCCESS;
}

}  // namespace fargpu::client

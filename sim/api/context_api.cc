// Contexts: created and primary ones, the thread's stack, synchronisation, limits, preferences,
// peers.
#include "sim/context/green_context.h"
#include "sim/context/primary_context.h"
#include "sim/object/api.h"

using namespace fargpu::sim;

namespace {

constexpr unsigned kContextFlags = CU_CTX_FLAGS_MASK;

bool valid_flags(unsigned flags) {
  const unsigned schedule = flags & CU_CTX_SCHED_MASK;
  return (flags & ~kContextFlags) == 0 && (schedule == 0 || (schedule & (schedule - 1)) == 0);
}

CUresult create_context(CUcontext* pctx, unsigned flags, CUdevice dev) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (pctx == nullptr || !valid_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
    Device* device = driver.device(dev);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (device->prohibited()) return CUDA_ERROR_DEVICE_UNAVAILABLE;
    auto context = Context::create(*device, flags, false);
    if (!context) return CUDA_ERROR_OUT_OF_MEMORY;
    context->set_handle(to_handle<CUcontext>(driver.registry().add(context, 0)));
    context_stack().push_back(context->handle());
    *pctx = context->handle();
    return CUDA_SUCCESS;
  });
}

// The named context, or the current one for NULL.
CUresult named_context(CUcontext handle, std::shared_ptr<Context>* context) {
  if (handle == nullptr) return current_context(context);
  *context = find_context(handle);
  if (*context && (*context)->alive()) return CUDA_SUCCESS;
  return is_context(handle) ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
}

}  // namespace

CUresult CUDAAPI cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams* ctxCreateParams,
                                unsigned int flags, CUdevice dev) {
  if (ctxCreateParams != nullptr &&
      (ctxCreateParams->numExecAffinityParams != 0 || ctxCreateParams->cigParams != nullptr)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return create_context(pctx, flags, dev);
}

CUresult CUDAAPI cuCtxCreate_v3(CUcontext* pctx, CUexecAffinityParam* paramsArray, int numParams,
                                unsigned int flags, CUdevice dev) {
  if (numParams != 0 && paramsArray != nullptr) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  return create_context(pctx, flags, dev);
}

CUresult CUDAAPI cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  return create_context(pctx, flags, dev);
}

CUresult CUDAAPI cuCtxDestroy_v2(CUcontext ctx) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (ctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto context = driver.registry().remove<Context>(ctx);
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    context->destroy();
    auto& stack = context_stack();
    if (!stack.empty() && stack.back() == ctx) stack.pop_back();
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxDestroy(CUcontext ctx) { return cuCtxDestroy_v2(ctx); }

CUresult CUDAAPI cuCtxPushCurrent_v2(CUcontext ctx) {
  return with_driver([&](Driver&) -> CUresult {
    if (ctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!is_context(ctx)) return CUDA_ERROR_INVALID_CONTEXT;
    context_stack().push_back(ctx);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxPushCurrent(CUcontext ctx) { return cuCtxPushCurrent_v2(ctx); }

CUresult CUDAAPI cuCtxPopCurrent_v2(CUcontext* pctx) {
  return with_driver([&](Driver&) -> CUresult {
    auto& stack = context_stack();
    if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    if (pctx != nullptr) *pctx = stack.back();
    stack.pop_back();
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxPopCurrent(CUcontext* pctx) { return cuCtxPopCurrent_v2(pctx); }

CUresult CUDAAPI cuCtxSetCurrent(CUcontext ctx) {
  return with_driver([&](Driver&) -> CUresult {
    auto& stack = context_stack();
    if (ctx != nullptr && !is_context(ctx)) return CUDA_ERROR_INVALID_CONTEXT;
    if (!stack.empty()) stack.pop_back();
    if (ctx != nullptr) stack.push_back(ctx);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext* pctx) {
  return with_driver([&](Driver&) -> CUresult {
    if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pctx = context_stack().empty() ? nullptr : context_stack().back();
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxGetDevice(CUdevice* device) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (context_stack().empty()) return CUDA_ERROR_INVALID_CONTEXT;
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    // Also answered for a primary context that is not retained.
    if (auto primary = driver.registry().find<PrimaryContext>(context_stack().back())) {
      *device = primary->device().ordinal();
      return CUDA_SUCCESS;
    }
    std::shared_ptr<Context> context;
    if (CUresult result = current_context(&context); result != CUDA_SUCCESS) return result;
    *device = context->device().ordinal();
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxGetDevice_v2(CUdevice* device, CUcontext ctx) {
  if (ctx == nullptr) return cuCtxGetDevice(device);
  return with_driver([&](Driver&) -> CUresult {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<Context> context;
    if (CUresult result = named_context(ctx, &context); result != CUDA_SUCCESS) return result;
    *device = context->device().ordinal();
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxGetFlags(unsigned int* flags) {
  return with_context([&](Context& context) -> CUresult {
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = context.flags();
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxSetFlags(unsigned int flags) {
  return with_context([&](Context& context) -> CUresult {
    if (!valid_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
    context.set_flags(flags);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxGetId(CUcontext ctx, unsigned long long* ctxId) {
  return with_driver([&](Driver&) -> CUresult {
    std::shared_ptr<Context> context;
    if (CUresult result = named_context(ctx, &context); result != CUDA_SUCCESS) return result;
    if (ctxId == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *ctxId = context->id();
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxSynchronize(void) {
  return with_context([](Context& context) { return context.synchronize(current_green().get()); });
}

CUresult CUDAAPI cuCtxSynchronize_v2(CUcontext ctx) {
  return with_driver([&](Driver& driver) -> CUresult {
    std::shared_ptr<Context> context;
    if (CUresult result = named_context(ctx, &context); result != CUDA_SUCCESS) return result;
    const auto green = ctx == nullptr ? current_green() : driver.registry().find<GreenContext>(ctx);
    return context->synchronize(green.get());
  });
}

CUresult CUDAAPI cuCtxSetLimit(CUlimit limit, size_t value) {
  return with_context([&](Context& context) {
    context.quiesce_if_locked();
    return context.set_limit(limit, value);
  });
}

CUresult CUDAAPI cuCtxGetLimit(size_t* pvalue, CUlimit limit) {
  return with_context([&](Context& context) -> CUresult {
    return pvalue == nullptr ? CUDA_ERROR_INVALID_VALUE : context.limit(limit, pvalue);
  });
}

CUresult CUDAAPI cuCtxGetCacheConfig(CUfunc_cache* pconfig) {
  return with_context([&](Context& context) -> CUresult {
    if (pconfig == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pconfig = context.cache_config();
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxSetCacheConfig(CUfunc_cache config) {
  return with_context([&](Context& context) -> CUresult {
    if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL)
      return CUDA_ERROR_INVALID_VALUE;
    context.set_cache_config(config);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxGetSharedMemConfig(CUsharedconfig* pConfig) {
  return with_context([&](Context& context) -> CUresult {
    if (pConfig == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pConfig = context.shared_config();
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxSetSharedMemConfig(CUsharedconfig config) {
  return with_context([&](Context& context) -> CUresult {
    if (config < CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE ||
        config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;  // banks have one width since capability 5.0
  });
}

CUresult CUDAAPI cuCtxGetApiVersion(CUcontext ctx, unsigned int* version) {
  return with_driver([&](Driver&) -> CUresult {
    std::shared_ptr<Context> context;
    if (CUresult result = named_context(ctx, &context); result != CUDA_SUCCESS) return result;
    if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *version = 3020;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  return with_context([&](Context&) -> CUresult {
    if (leastPriority != nullptr) *leastPriority = kLeastPriority;
    if (greatestPriority != nullptr) *greatestPriority = kGreatestPriority;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxResetPersistingL2Cache(void) {
  return with_context([](Context&) { return CUDA_SUCCESS; });
}

CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) {
  return with_context([&](Context& context) -> CUresult {
    if (Flags != 0) return CUDA_ERROR_INVALID_VALUE;
    auto peer = find_context(peerContext);
    if (!peer || peer.get() == &context) return CUDA_ERROR_INVALID_CONTEXT;
    const int ordinal = peer->device().ordinal();
    if (ordinal == context.device().ordinal()) return CUDA_ERROR_INVALID_DEVICE;
    if (context.memory().peer_enabled(ordinal)) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    context.memory().enable_peer(ordinal);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxDisablePeerAccess(CUcontext peerContext) {
  return with_context([&](Context& context) -> CUresult {
    auto peer = find_context(peerContext);
    if (!peer) return CUDA_ERROR_INVALID_CONTEXT;
    const int ordinal = peer->device().ordinal();
    if (!context.memory().peer_enabled(ordinal)) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    context.synchronize();
    context.memory().disable_peer(ordinal);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
  return with_device(dev, [&](Device& device) -> CUresult {
    if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
    PrimaryContext& primary = PrimaryContext::of(device);
    if (primary.retain() == nullptr) return device.without_context();
    *pctx = primary.handle();
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  return with_device(dev, [](Device& device) { return PrimaryContext::of(device).release(); });
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice dev) {
  return cuDevicePrimaryCtxRelease_v2(dev);
}

CUresult CUDAAPI cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  return with_device(dev, [](Device& device) -> CUresult {
    PrimaryContext& primary = PrimaryContext::of(device);
    if (primary.greens > 0) return CUDA_ERROR_NOT_PERMITTED;
    primary.reset();
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDevicePrimaryCtxReset(CUdevice dev) { return cuDevicePrimaryCtxReset_v2(dev); }

CUresult CUDAAPI cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
  return with_device(dev, [&](Device& device) -> CUresult {
    if (!valid_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
    PrimaryContext::of(device).set_flags(flags);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags) {
  return cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}

CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int* flags, int* active) {
  return with_device(dev, [&](Device& device) -> CUresult {
    if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const PrimaryContext& primary = PrimaryContext::of(device);
    *flags = primary.flags();
    *active = primary.get() != nullptr;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxGetExecAffinity(CUexecAffinityParam* pExecAffinity, CUexecAffinityType type) {
  return with_context([&](Context&) -> CUresult {
    if (pExecAffinity == nullptr || type < 0 || type >= CU_EXEC_AFFINITY_TYPE_MAX)
      return CUDA_ERROR_INVALID_VALUE;
    return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  });
}

// The usage counts of CUDA 3: a context created here has one user, and one attached user more does
// not matter.
CUresult CUDAAPI cuCtxAttach(CUcontext* pctx, unsigned int flags) {
  return with_context([&](Context& context) -> CUresult {
    if (pctx == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    context.attach();
    *pctx = context.handle();
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxDetach(CUcontext ctx) {
  return with_context([&](Context& context) -> CUresult {
    if (ctx != context.handle()) return CUDA_ERROR_INVALID_CONTEXT;
    return context.detach() ? cuCtxDestroy_v2(ctx) : CUDA_SUCCESS;
  });
}

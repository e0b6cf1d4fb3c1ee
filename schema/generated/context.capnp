# Messages of context management. Made by `apigen generate` from api/driver/context.yml; do not edit.
@0xc5752f26a120942b;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("fargpu::schema");

struct CuCtxSynchronizeParams {}

struct CuCtxSetLimitParams {
  limit @0 :Int32;  # CUlimit
  value @1 :UInt64;  # size_t
}

struct CuCtxGetLimitParams {
  limit @0 :Int32;  # CUlimit
}

struct CuCtxGetLimitResults {
  pvalue @0 :UInt64;  # size_t*
}

struct CuCtxGetCacheConfigParams {}

struct CuCtxGetCacheConfigResults {
  pconfig @0 :Int32;  # CUfunc_cache*
}

struct CuCtxSetCacheConfigParams {
  config @0 :Int32;  # CUfunc_cache
}

struct CuCtxResetPersistingL2CacheParams {}

struct CuCtxGetExecAffinityParams {
  type @0 :Int32;  # CUexecAffinityType
}

struct CuCtxGetExecAffinityResults {
  pExecAffinity @0 :Data;  # CUexecAffinityParam*
}

struct CuCtxRecordEventParams {
  hCtx @0 :UInt64;  # CUcontext
  hEvent @1 :UInt64;  # CUevent
}

struct CuCtxWaitEventParams {
  hCtx @0 :UInt64;  # CUcontext
  hEvent @1 :UInt64;  # CUevent
}

struct CuCtxGetSharedMemConfigParams {}

struct CuCtxGetSharedMemConfigResults {
  pConfig @0 :Int32;  # CUsharedconfig*
}

struct CuCtxSetSharedMemConfigParams {
  config @0 :Int32;  # CUsharedconfig
}

# Messages of green contexts. Made by `apigen generate` from api/driver/green_context.yml; do not edit.
@0x849778b334a5da80;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("fargpu::schema");

struct CuDeviceGetDevResourceParams {
  device @0 :Int32;  # CUdevice
  type @1 :Int32;  # CUdevResourceType
}

struct CuDeviceGetDevResourceResults {
  resource @0 :Data;  # CUdevResource*
}

struct CuCtxGetDevResourceParams {
  hCtx @0 :UInt64;  # CUcontext
  type @1 :Int32;  # CUdevResourceType
}

struct CuCtxGetDevResourceResults {
  resource @0 :Data;  # CUdevResource*
}

struct CuDevResourceGenerateDescParams {
  phDesc @0 :UInt64;  # CUdevResourceDesc*
  resources @1 :Data;  # CUdevResource*
  nbResources @2 :UInt32;  # unsigned int
}

struct CuGreenCtxStreamCreateParams {
  phStream @0 :UInt64;  # CUstream*
  greenCtx @1 :UInt64;  # CUgreenCtx
  flags @2 :UInt32;  # unsigned int
  priority @3 :Int32;  # int
}

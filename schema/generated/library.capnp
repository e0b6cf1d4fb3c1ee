# Messages of library management. Made by `apigen generate` from api/driver/library.yml; do not edit.
@0xf910b80da8d769c9;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("fargpu::schema");

struct CuLibraryUnloadParams {
  library @0 :UInt64;  # CUlibrary
}

struct CuLibraryGetModuleParams {
  pMod @0 :UInt64;  # CUmodule*
  library @1 :UInt64;  # CUlibrary
}

struct CuKernelGetFunctionParams {
  pFunc @0 :UInt64;  # CUfunction*
  kernel @1 :UInt64;  # CUkernel
}

struct CuLibraryGetGlobalParams {
  library @0 :UInt64;  # CUlibrary
  name @1 :Text;
}

struct CuLibraryGetGlobalResults {
  dptr @0 :UInt64;  # CUdeviceptr*
  bytes @1 :UInt64;  # size_t*
}

struct CuLibraryGetManagedParams {
  library @0 :UInt64;  # CUlibrary
  name @1 :Text;
}

struct CuLibraryGetManagedResults {
  dptr @0 :UInt64;  # CUdeviceptr*
  bytes @1 :UInt64;  # size_t*
}

struct CuKernelSetAttributeParams {
  attrib @0 :Int32;  # CUfunction_attribute
  val @1 :Int32;  # int
  kernel @2 :UInt64;  # CUkernel
  dev @3 :Int32;  # CUdevice
}

struct CuKernelSetCacheConfigParams {
  kernel @0 :UInt64;  # CUkernel
  config @1 :Int32;  # CUfunc_cache
  dev @2 :Int32;  # CUdevice
}

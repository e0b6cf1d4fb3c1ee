# Messages of module management. Made by `apigen generate` from api/driver/module.yml; do not edit.
@0xe0641cf996c4197d;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("fargpu::schema");

struct CuModuleUnloadParams {
  hmod @0 :UInt64;  # CUmodule
}

struct CuModuleGetGlobalV2Params {
  hmod @0 :UInt64;  # CUmodule
  name @1 :Text;
}

struct CuModuleGetGlobalV2Results {
  dptr @0 :UInt64;  # CUdeviceptr*
  bytes @1 :UInt64;  # size_t*
}

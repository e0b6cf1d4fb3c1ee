# Messages of execution control. Made by `apigen generate` from api/driver/execution.yml; do not edit.
@0xdc25cebad0e8ed8f;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("fargpu::schema");

struct CuFuncSetAttributeParams {
  hfunc @0 :UInt64;  # CUfunction
  attrib @1 :Int32;  # CUfunction_attribute
  value @2 :Int32;  # int
}

struct CuFuncSetCacheConfigParams {
  hfunc @0 :UInt64;  # CUfunction
  config @1 :Int32;  # CUfunc_cache
}

struct CuFuncSetSharedMemConfigParams {
  hfunc @0 :UInt64;  # CUfunction
  config @1 :Int32;  # CUsharedconfig
}

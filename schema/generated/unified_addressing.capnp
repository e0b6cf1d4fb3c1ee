# Messages of unified addressing. Made by `apigen generate` from api/driver/unified_addressing.yml; do not edit.
@0xcc0bbf8bb5d0f344;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("fargpu::schema");

struct CuPointerSetAttributeParams {
  value @0 :Data;  # const void*
  attribute @1 :Int32;  # CUpointer_attribute
  ptr @2 :UInt64;  # CUdeviceptr
}

# Messages of graph management. Made by `apigen generate` from api/driver/graph.yml; do not edit.
@0x931dc0327ea39625;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("fargpu::schema");

struct CuDeviceGraphMemTrimParams {
  device @0 :Int32;  # CUdevice
}

struct CuDeviceGetGraphMemAttributeParams {
  device @0 :Int32;  # CUdevice
  attr @1 :Int32;  # CUgraphMem_attribute
}

struct CuDeviceGetGraphMemAttributeResults {
  value @0 :Data;  # void*
}

struct CuDeviceSetGraphMemAttributeParams {
  device @0 :Int32;  # CUdevice
  attr @1 :Int32;  # CUgraphMem_attribute
  value @2 :Data;  # void*
}

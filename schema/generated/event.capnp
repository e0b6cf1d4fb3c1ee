# Messages of event management. Made by `apigen generate` from api/driver/event.yml; do not edit.
@0xfc91892c484fa6d6;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("fargpu::schema");

struct CuEventCreateParams {
  phEvent @0 :UInt64;  # CUevent*
  flags @1 :UInt32;  # unsigned int
}

struct CuEventQueryParams {
  hEvent @0 :UInt64;  # CUevent
}

struct CuEventSynchronizeParams {
  hEvent @0 :UInt64;  # CUevent
}

struct CuEventDestroyV2Params {
  hEvent @0 :UInt64;  # CUevent
}

struct CuEventElapsedTimeV2Params {
  hStart @0 :UInt64;  # CUevent
  hEnd @1 :UInt64;  # CUevent
}

struct CuEventElapsedTimeV2Results {
  pMilliseconds @0 :Float32;  # float*
}

struct CuEventRecordParams {
  hEvent @0 :UInt64;  # CUevent
  hStream @1 :UInt64;  # CUstream
}

struct CuEventRecordWithFlagsParams {
  hEvent @0 :UInt64;  # CUevent
  hStream @1 :UInt64;  # CUstream
  flags @2 :UInt32;  # unsigned int
}

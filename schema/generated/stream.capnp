# Messages of stream management. Made by `apigen generate` from api/driver/stream.yml; do not edit.
@0xe2a7f35a2a5180e8;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("fargpu::schema");

struct CuStreamCreateParams {
  phStream @0 :UInt64;  # CUstream*
  flags @1 :UInt32;  # unsigned int
}

struct CuStreamCreateWithPriorityParams {
  phStream @0 :UInt64;  # CUstream*
  flags @1 :UInt32;  # unsigned int
  priority @2 :Int32;  # int
}

struct CuStreamDestroyV2Params {
  hStream @0 :UInt64;  # CUstream
}

struct CuStreamGetPriorityParams {
  hStream @0 :UInt64;  # CUstream
}

struct CuStreamGetPriorityResults {
  priority @0 :Int32;  # int*
}

struct CuStreamGetIdParams {
  hStream @0 :UInt64;  # CUstream
}

struct CuStreamGetIdResults {
  streamId @0 :UInt64;  # unsigned long long*
}

struct CuStreamGetFlagsParams {
  hStream @0 :UInt64;  # CUstream
}

struct CuStreamGetFlagsResults {
  flags @0 :UInt32;  # unsigned int*
}

struct CuStreamWaitEventParams {
  hStream @0 :UInt64;  # CUstream
  hEvent @1 :UInt64;  # CUevent
  flags @2 :UInt32;  # unsigned int
}

struct CuStreamQueryParams {
  hStream @0 :UInt64;  # CUstream
}

struct CuStreamSynchronizeParams {
  hStream @0 :UInt64;  # CUstream
}

struct CuStreamCopyAttributesParams {
  dstStream @0 :UInt64;  # CUstream
  srcStream @1 :UInt64;  # CUstream
}

struct CuStreamGetAttributeParams {
  hStream @0 :UInt64;  # CUstream
  attr @1 :Int32;  # CUstreamAttrID
}

struct CuStreamGetAttributeResults {
  value @0 :Data;  # CUstreamAttrValue*
}

struct CuStreamSetAttributeParams {
  hStream @0 :UInt64;  # CUstream
  attr @1 :Int32;  # CUstreamAttrID
  param @2 :Data;  # const CUstreamAttrValue*
}

# Messages of stream memory operations. Made by `apigen generate` from api/driver/stream_memory_operations.yml; do not edit.
@0xeab9cc8174c95bb0;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("fargpu::schema");

struct CuStreamWriteValue32V2Params {
  stream @0 :UInt64;  # CUstream
  addr @1 :UInt64;  # CUdeviceptr
  value @2 :UInt32;  # cuuint32_t
  flags @3 :UInt32;  # unsigned int
}

struct CuStreamWaitValue32V2Params {
  stream @0 :UInt64;  # CUstream
  addr @1 :UInt64;  # CUdeviceptr
  value @2 :UInt32;  # cuuint32_t
  flags @3 :UInt32;  # unsigned int
}

struct CuStreamWriteValue64V2Params {
  stream @0 :UInt64;  # CUstream
  addr @1 :UInt64;  # CUdeviceptr
  value @2 :UInt64;  # cuuint64_t
  flags @3 :UInt32;  # unsigned int
}

struct CuStreamWaitValue64V2Params {
  stream @0 :UInt64;  # CUstream
  addr @1 :UInt64;  # CUdeviceptr
  value @2 :UInt64;  # cuuint64_t
  flags @3 :UInt32;  # unsigned int
}

struct CuStreamBatchMemOpV2Params {
  stream @0 :UInt64;  # CUstream
  count @1 :UInt32;  # unsigned int
  paramArray @2 :Data;  # CUstreamBatchMemOpParams*
  flags @3 :UInt32;  # unsigned int
}

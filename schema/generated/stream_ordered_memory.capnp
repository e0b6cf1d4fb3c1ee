# Messages of stream ordered memory allocator. Made by `apigen generate` from api/driver/stream_ordered_memory.yml; do not edit.
@0xc5970039ecc8e7dc;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("fargpu::schema");

struct CuMemPoolTrimToParams {
  pool @0 :UInt64;  # CUmemoryPool
  minBytesToKeep @1 :UInt64;  # size_t
}

struct CuMemPoolSetAttributeParams {
  pool @0 :UInt64;  # CUmemoryPool
  attr @1 :Int32;  # CUmemPool_attribute
  value @2 :Data;  # void*
}

struct CuMemPoolGetAttributeParams {
  pool @0 :UInt64;  # CUmemoryPool
  attr @1 :Int32;  # CUmemPool_attribute
}

struct CuMemPoolGetAttributeResults {
  value @0 :Data;  # void*
}

struct CuMemPoolSetAccessParams {
  pool @0 :UInt64;  # CUmemoryPool
  map @1 :Data;  # const CUmemAccessDesc*
  count @2 :UInt64;  # size_t
}

struct CuMemPoolGetAccessParams {
  memPool @0 :UInt64;  # CUmemoryPool
  location @1 :Data;  # CUmemLocation*
}

struct CuMemPoolGetAccessResults {
  flags @0 :Int32;  # CUmemAccess_flags*
}

struct CuMemPoolCreateParams {
  pool @0 :UInt64;  # CUmemoryPool*
  poolProps @1 :Data;  # const CUmemPoolProps*
}

struct CuMemPoolDestroyParams {
  pool @0 :UInt64;  # CUmemoryPool
}

struct CuMemPoolExportToShareableHandleParams {
  pool @0 :UInt64;  # CUmemoryPool
  handleType @1 :Int32;  # CUmemAllocationHandleType
  flags @2 :UInt64;  # unsigned long long
}

struct CuMemPoolExportToShareableHandleResults {
  handleOut @0 :Data;  # void*
}

struct CuMemPoolExportPointerParams {
  ptr @0 :UInt64;  # CUdeviceptr
}

struct CuMemPoolExportPointerResults {
  shareDataOut @0 :Data;  # CUmemPoolPtrExportData*
}

struct CuMemFreeAsyncParams {
  dptr @0 :UInt64;  # CUdeviceptr
  hStream @1 :UInt64;  # CUstream
}

struct CuMemAllocAsyncParams {
  bytesize @0 :UInt64;  # size_t
  hStream @1 :UInt64;  # CUstream
}

struct CuMemAllocAsyncResults {
  dptr @0 :UInt64;  # CUdeviceptr*
}

struct CuMemAllocFromPoolAsyncParams {
  bytesize @0 :UInt64;  # size_t
  pool @1 :UInt64;  # CUmemoryPool
  hStream @2 :UInt64;  # CUstream
}

struct CuMemAllocFromPoolAsyncResults {
  dptr @0 :UInt64;  # CUdeviceptr*
}

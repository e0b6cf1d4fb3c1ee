# Messages of virtual memory management. Made by `apigen generate` from api/driver/virtual_memory.yml; do not edit.
@0x8daf98e6fc70a1ce;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("fargpu::schema");

struct CuMemAddressReserveParams {
  size @0 :UInt64;  # size_t
  alignment @1 :UInt64;  # size_t
  addr @2 :UInt64;  # CUdeviceptr
  flags @3 :UInt64;  # unsigned long long
}

struct CuMemAddressReserveResults {
  ptr @0 :UInt64;  # CUdeviceptr*
}

struct CuMemAddressFreeParams {
  ptr @0 :UInt64;  # CUdeviceptr
  size @1 :UInt64;  # size_t
}

struct CuMemCreateParams {
  handle @0 :UInt64;  # CUmemGenericAllocationHandle*
  size @1 :UInt64;  # size_t
  prop @2 :Data;  # const CUmemAllocationProp*
  flags @3 :UInt64;  # unsigned long long
}

struct CuMemReleaseParams {
  handle @0 :UInt64;  # CUmemGenericAllocationHandle
}

struct CuMemMapParams {
  ptr @0 :UInt64;  # CUdeviceptr
  size @1 :UInt64;  # size_t
  offset @2 :UInt64;  # size_t
  handle @3 :UInt64;  # CUmemGenericAllocationHandle
  flags @4 :UInt64;  # unsigned long long
}

struct CuMemUnmapParams {
  ptr @0 :UInt64;  # CUdeviceptr
  size @1 :UInt64;  # size_t
}

struct CuMemSetAccessParams {
  ptr @0 :UInt64;  # CUdeviceptr
  size @1 :UInt64;  # size_t
  desc @2 :Data;  # const CUmemAccessDesc*
  count @3 :UInt64;  # size_t
}

struct CuMemGetAccessParams {
  location @0 :Data;  # const CUmemLocation*
  ptr @1 :UInt64;  # CUdeviceptr
}

struct CuMemGetAccessResults {
  flags @0 :UInt64;  # unsigned long long*
}

struct CuMemExportToShareableHandleParams {
  handle @0 :UInt64;  # CUmemGenericAllocationHandle
  handleType @1 :Int32;  # CUmemAllocationHandleType
  flags @2 :UInt64;  # unsigned long long
}

struct CuMemExportToShareableHandleResults {
  shareableHandle @0 :Data;  # void*
}

struct CuMemImportFromShareableHandleParams {
  handle @0 :UInt64;  # CUmemGenericAllocationHandle*
  osHandle @1 :Data;  # void*
  shHandleType @2 :Int32;  # CUmemAllocationHandleType
}

struct CuMemGetAllocationGranularityParams {
  prop @0 :Data;  # const CUmemAllocationProp*
  option @1 :Int32;  # CUmemAllocationGranularity_flags
}

struct CuMemGetAllocationGranularityResults {
  granularity @0 :UInt64;  # size_t*
}

struct CuMemGetAllocationPropertiesFromHandleParams {
  handle @0 :UInt64;  # CUmemGenericAllocationHandle
}

struct CuMemGetAllocationPropertiesFromHandleResults {
  prop @0 :Data;  # CUmemAllocationProp*
}

struct CuMemRetainAllocationHandleParams {
  handle @0 :UInt64;  # CUmemGenericAllocationHandle*
  addr @1 :UInt64;  # void*
}

struct CuMemMapArrayAsyncParams {
  mapInfoList @0 :Data;  # CUarrayMapInfo*
  count @1 :UInt32;  # unsigned int
  hStream @2 :UInt64;  # CUstream
}

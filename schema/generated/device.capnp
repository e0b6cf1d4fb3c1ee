# Messages of device management. Made by `apigen generate` from api/driver/device.yml; do not edit.
@0xda55ef59e20164ab;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("fargpu::schema");

struct CuDeviceGetTexture1DLinearMaxWidthParams {
  format @0 :Int32;  # CUarray_format
  numChannels @1 :UInt32;  # unsigned
  dev @2 :Int32;  # CUdevice
}

struct CuDeviceGetTexture1DLinearMaxWidthResults {
  maxWidthInElements @0 :UInt64;  # size_t*
}

struct CuDeviceGetHostAtomicCapabilitiesParams {
  operations @0 :Data;  # const CUatomicOperation*
  count @1 :UInt32;  # unsigned int
  dev @2 :Int32;  # CUdevice
}

struct CuDeviceGetHostAtomicCapabilitiesResults {
  capabilities @0 :Data;  # unsigned int*
}

struct CuDeviceSetMemPoolParams {
  dev @0 :Int32;  # CUdevice
  pool @1 :UInt64;  # CUmemoryPool
}

struct CuDeviceGetDefaultMemPoolParams {
  poolOut @0 :UInt64;  # CUmemoryPool*
  dev @1 :Int32;  # CUdevice
}

struct CuDeviceGetExecAffinitySupportParams {
  type @0 :Int32;  # CUexecAffinityType
  dev @1 :Int32;  # CUdevice
}

struct CuDeviceGetExecAffinitySupportResults {
  pi @0 :Int32;  # int*
}

struct CuFlushGPUDirectRDMAWritesParams {
  target @0 :Int32;  # CUflushGPUDirectRDMAWritesTarget
  scope @1 :Int32;  # CUflushGPUDirectRDMAWritesScope
}

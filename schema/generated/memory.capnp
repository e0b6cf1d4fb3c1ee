# Messages of memory management. Made by `apigen generate` from api/driver/memory.yml; do not edit.
@0x961fa4beaeb1df4c;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("fargpu::schema");

struct CuMemGetInfoV2Params {}

struct CuMemGetInfoV2Results {
  free @0 :UInt64;  # size_t*
  total @1 :UInt64;  # size_t*
}

struct CuMemAllocV2Params {
  bytesize @0 :UInt64;  # size_t
}

struct CuMemAllocV2Results {
  dptr @0 :UInt64;  # CUdeviceptr*
}

struct CuMemAllocPitchV2Params {
  widthInBytes @0 :UInt64;  # size_t
  height @1 :UInt64;  # size_t
  elementSizeBytes @2 :UInt32;  # unsigned int
}

struct CuMemAllocPitchV2Results {
  dptr @0 :UInt64;  # CUdeviceptr*
  pPitch @1 :UInt64;  # size_t*
}

struct CuMemFreeV2Params {
  dptr @0 :UInt64;  # CUdeviceptr
}

struct CuMemGetAddressRangeV2Params {
  dptr @0 :UInt64;  # CUdeviceptr
}

struct CuMemGetAddressRangeV2Results {
  pbase @0 :UInt64;  # CUdeviceptr*
  psize @1 :UInt64;  # size_t*
}

struct CuIpcGetEventHandleParams {
  event @0 :UInt64;  # CUevent
}

struct CuIpcGetEventHandleResults {
  pHandle @0 :Data;  # CUipcEventHandle*
}

struct CuIpcGetMemHandleParams {
  dptr @0 :UInt64;  # CUdeviceptr
}

struct CuIpcGetMemHandleResults {
  pHandle @0 :Data;  # CUipcMemHandle*
}

struct CuArrayCreateV2Params {
  pHandle @0 :UInt64;  # CUarray*
  pAllocateArray @1 :Data;  # const CUDA_ARRAY_DESCRIPTOR*
}

struct CuArrayGetSparsePropertiesParams {
  array @0 :UInt64;  # CUarray
}

struct CuArrayGetSparsePropertiesResults {
  sparseProperties @0 :Data;  # CUDA_ARRAY_SPARSE_PROPERTIES*
}

struct CuMipmappedArrayGetSparsePropertiesParams {
  mipmap @0 :UInt64;  # CUmipmappedArray
}

struct CuMipmappedArrayGetSparsePropertiesResults {
  sparseProperties @0 :Data;  # CUDA_ARRAY_SPARSE_PROPERTIES*
}

struct CuArrayGetMemoryRequirementsParams {
  array @0 :UInt64;  # CUarray
  device @1 :Int32;  # CUdevice
}

struct CuArrayGetMemoryRequirementsResults {
  memoryRequirements @0 :Data;  # CUDA_ARRAY_MEMORY_REQUIREMENTS*
}

struct CuMipmappedArrayGetMemoryRequirementsParams {
  mipmap @0 :UInt64;  # CUmipmappedArray
  device @1 :Int32;  # CUdevice
}

struct CuMipmappedArrayGetMemoryRequirementsResults {
  memoryRequirements @0 :Data;  # CUDA_ARRAY_MEMORY_REQUIREMENTS*
}

struct CuArrayGetPlaneParams {
  pPlaneArray @0 :UInt64;  # CUarray*
  hArray @1 :UInt64;  # CUarray
  planeIdx @2 :UInt32;  # unsigned int
}

struct CuArrayDestroyParams {
  hArray @0 :UInt64;  # CUarray
}

struct CuArray3DCreateV2Params {
  pHandle @0 :UInt64;  # CUarray*
  pAllocateArray @1 :Data;  # const CUDA_ARRAY3D_DESCRIPTOR*
}

struct CuMipmappedArrayCreateParams {
  pHandle @0 :UInt64;  # CUmipmappedArray*
  pMipmappedArrayDesc @1 :Data;  # const CUDA_ARRAY3D_DESCRIPTOR*
  numMipmapLevels @2 :UInt32;  # unsigned int
}

struct CuMipmappedArrayGetLevelParams {
  pLevelArray @0 :UInt64;  # CUarray*
  hMipmappedArray @1 :UInt64;  # CUmipmappedArray
  level @2 :UInt32;  # unsigned int
}

struct CuMipmappedArrayDestroyParams {
  hMipmappedArray @0 :UInt64;  # CUmipmappedArray
}

struct CuMemcpyDtoDAsyncV2Params {
  dstDevice @0 :UInt64;  # CUdeviceptr
  srcDevice @1 :UInt64;  # CUdeviceptr
  byteCount @2 :UInt64;  # size_t
  hStream @3 :UInt64;  # CUstream
}

struct CuMemcpy2DAsyncV2Params {
  pCopy @0 :Data;  # const CUDA_MEMCPY2D*
  hStream @1 :UInt64;  # CUstream
}

struct CuMemcpy3DAsyncV2Params {
  pCopy @0 :Data;  # const CUDA_MEMCPY3D*
  hStream @1 :UInt64;  # CUstream
}

struct CuMemcpyPeerAsyncParams {
  dstDevice @0 :UInt64;  # CUdeviceptr
  dstContext @1 :UInt64;  # CUcontext
  srcDevice @2 :UInt64;  # CUdeviceptr
  srcContext @3 :UInt64;  # CUcontext
  byteCount @4 :UInt64;  # size_t
  hStream @5 :UInt64;  # CUstream
}

struct CuMemcpy3DPeerAsyncParams {
  pCopy @0 :Data;  # const CUDA_MEMCPY3D_PEER*
  hStream @1 :UInt64;  # CUstream
}

struct CuMemsetD8AsyncParams {
  dstDevice @0 :UInt64;  # CUdeviceptr
  uc @1 :UInt8;  # unsigned char
  n @2 :UInt64;  # size_t
  hStream @3 :UInt64;  # CUstream
}

struct CuMemsetD16AsyncParams {
  dstDevice @0 :UInt64;  # CUdeviceptr
  us @1 :UInt16;  # unsigned short
  n @2 :UInt64;  # size_t
  hStream @3 :UInt64;  # CUstream
}

struct CuMemsetD32AsyncParams {
  dstDevice @0 :UInt64;  # CUdeviceptr
  ui @1 :UInt32;  # unsigned int
  n @2 :UInt64;  # size_t
  hStream @3 :UInt64;  # CUstream
}

struct CuMemsetD2D8AsyncParams {
  dstDevice @0 :UInt64;  # CUdeviceptr
  dstPitch @1 :UInt64;  # size_t
  uc @2 :UInt8;  # unsigned char
  width @3 :UInt64;  # size_t
  height @4 :UInt64;  # size_t
  hStream @5 :UInt64;  # CUstream
}

struct CuMemsetD2D16AsyncParams {
  dstDevice @0 :UInt64;  # CUdeviceptr
  dstPitch @1 :UInt64;  # size_t
  us @2 :UInt16;  # unsigned short
  width @3 :UInt64;  # size_t
  height @4 :UInt64;  # size_t
  hStream @5 :UInt64;  # CUstream
}

struct CuMemsetD2D32AsyncParams {
  dstDevice @0 :UInt64;  # CUdeviceptr
  dstPitch @1 :UInt64;  # size_t
  ui @2 :UInt32;  # unsigned int
  width @3 :UInt64;  # size_t
  height @4 :UInt64;  # size_t
  hStream @5 :UInt64;  # CUstream
}

struct CuMemBatchDecompressAsyncParams {
  paramsArray @0 :Data;  # CUmemDecompressParams*
  count @1 :UInt64;  # size_t
  flags @2 :UInt32;  # unsigned int
  stream @3 :UInt64;  # CUstream
}

struct CuMemBatchDecompressAsyncResults {
  errorIndex @0 :UInt64;  # size_t*
}

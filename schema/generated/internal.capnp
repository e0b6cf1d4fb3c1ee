# Messages of fargpu's own calls. Made by `apigen generate` from api/internal.yml; do not edit.
@0x9c920a87ccdfb4b9;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("fargpu::schema");

struct FgImagePutParams {
  hash @0 :Data;  # const unsigned char*
  totalBytes @1 :UInt64;  # unsigned long long
  offset @2 :UInt64;  # unsigned long long
  pieceBytes @3 :UInt64;  # size_t
  upload @4 :UInt64;  # unsigned long long
}

struct FgImagePutPackedParams {
  hash @0 :Data;  # const unsigned char*
  totalBytes @1 :UInt64;  # unsigned long long
  offset @2 :UInt64;  # unsigned long long
  rawBytes @3 :UInt64;  # unsigned long long
  frameBytes @4 :UInt64;  # size_t
  upload @5 :UInt64;  # unsigned long long
}

struct FgImageUploadedParams {
  upload @0 :UInt64;  # unsigned long long
}

struct FgModuleLoadParams {
  hash @0 :Data;  # const unsigned char*
  numOptions @1 :UInt32;  # unsigned int
  options @2 :Data;  # const int*
  values @3 :Data;  # const unsigned long long*
  infoLogBytes @4 :UInt32;  # unsigned int
  errorLogBytes @5 :UInt32;  # unsigned int
  module @6 :UInt64;  # CUmodule*
}

struct FgModuleLoadResults {
  infoLog @0 :Text;
  errorLog @1 :Text;
  outcome @2 :Int32;  # int*
}

struct FgLibraryLoadParams {
  hash @0 :Data;  # const unsigned char*
  numJitOptions @1 :UInt32;  # unsigned int
  jitOptions @2 :Data;  # const int*
  jitValues @3 :Data;  # const unsigned long long*
  numLibraryOptions @4 :UInt32;  # unsigned int
  libraryOptions @5 :Data;  # const int*
  libraryValues @6 :Data;  # const unsigned long long*
  library @7 :UInt64;  # CUlibrary*
}

struct FgLinkCreateParams {
  numOptions @0 :UInt32;  # unsigned int
  options @1 :Data;  # const int*
  values @2 :Data;  # const unsigned long long*
  infoLogBytes @3 :UInt32;  # unsigned int
  errorLogBytes @4 :UInt32;  # unsigned int
  state @5 :UInt64;  # CUlinkState*
}

struct FgLinkAddParams {
  state @0 :UInt64;  # CUlinkState
  type @1 :Int32;  # int
  hash @2 :Data;  # const unsigned char*
  name @3 :Text;
  numOptions @4 :UInt32;  # unsigned int
  options @5 :Data;  # const int*
  values @6 :Data;  # const unsigned long long*
  infoLogBytes @7 :UInt32;  # unsigned int
  errorLogBytes @8 :UInt32;  # unsigned int
}

struct FgLinkAddResults {
  outcome @0 :Int32;  # int*
  infoLog @1 :Text;
  errorLog @2 :Text;
}

struct FgLinkCompleteParams {
  state @0 :UInt64;  # CUlinkState
  infoLogBytes @1 :UInt32;  # unsigned int
  errorLogBytes @2 :UInt32;  # unsigned int
}

struct FgLinkCompleteResults {
  outcome @0 :Int32;  # int*
  imageBytes @1 :UInt64;  # unsigned long long*
  imageHash @2 :Data;  # unsigned char*
  infoLog @3 :Text;
  errorLog @4 :Text;
}

struct FgLinkDestroyParams {
  state @0 :UInt64;  # CUlinkState
}

struct FgImageGetParams {
  hash @0 :Data;  # const unsigned char*
  offset @1 :UInt64;  # unsigned long long
  pieceBytes @2 :UInt64;  # size_t
}

struct FgModuleFunctionParams {
  module @0 :UInt64;  # CUmodule
  name @1 :Text;
  function @2 :UInt64;  # CUfunction*
}

struct FgModuleFunctionResults {
  parameterCount @0 :UInt32;  # unsigned int*
  parameterOffsets @1 :Data;  # unsigned int*
  parameterSizes @2 :Data;  # unsigned int*
  attributes @3 :Data;  # int*
}

struct FgLibraryKernelParams {
  library @0 :UInt64;  # CUlibrary
  name @1 :Text;
  kernel @2 :UInt64;  # CUkernel*
}

struct FgLibraryKernelResults {
  parameterCount @0 :UInt32;  # unsigned int*
  parameterOffsets @1 :Data;  # unsigned int*
  parameterSizes @2 :Data;  # unsigned int*
  attributes @3 :Data;  # int*
}

struct FgImageNamesParams {
  image @0 :UInt64;  # unsigned long long
  ofLibrary @1 :Int32;  # int
  maxCount @2 :UInt32;  # unsigned int
}

struct FgImageNamesResults {
  count @0 :UInt32;  # unsigned int*
  namesBytes @1 :UInt64;  # size_t*
}

struct FgImageVariableParams {
  image @0 :UInt64;  # unsigned long long
  ofLibrary @1 :Int32;  # int
  name @2 :Text;
}

struct FgImageVariableResults {
  address @0 :UInt64;  # CUdeviceptr*
  bytes @1 :UInt64;  # size_t*
  managed @2 :Int32;  # int*
}

struct FgIpcOpenMemoryParams {
  handle @0 :Data;  # const CUipcMemHandle*
  flags @1 :UInt32;  # unsigned int
}

struct FgIpcOpenMemoryResults {
  address @0 :UInt64;  # CUdeviceptr*
  base @1 :UInt64;  # CUdeviceptr*
  bytes @2 :UInt64;  # size_t*
  device @3 :Int32;  # int*
}

struct FgIpcCloseMemoryParams {
  address @0 :UInt64;  # CUdeviceptr
}

struct FgIpcOpenEventParams {
  handle @0 :Data;  # const CUipcEventHandle*
  event @1 :UInt64;  # CUevent*
}

struct FgPoolImportParams {
  handle @0 :Data;  # const void*
  pool @1 :UInt64;  # CUmemoryPool*
}

struct FgPoolImportResults {
  device @0 :Int32;  # int*
}

struct FgPoolImportMemoryParams {
  pool @0 :UInt64;  # CUmemoryPool
  data @1 :Data;  # const CUmemPoolPtrExportData*
}

struct FgPoolImportMemoryResults {
  address @0 :UInt64;  # CUdeviceptr*
  bytes @1 :UInt64;  # size_t*
}

struct FgTexObjectCreateParams {
  resource @0 :Data;  # const CUDA_RESOURCE_DESC*
  texture @1 :Data;  # const CUDA_TEXTURE_DESC*
  view @2 :Data;  # const CUDA_RESOURCE_VIEW_DESC*
  object @3 :UInt64;  # CUtexObject*
}

struct FgTexObjectCreateResults {
  value @0 :UInt64;  # unsigned long long*
}

struct FgTexObjectDestroyParams {
  object @0 :UInt64;  # CUtexObject
}

struct FgSurfObjectCreateParams {
  resource @0 :Data;  # const CUDA_RESOURCE_DESC*
  object @1 :UInt64;  # CUsurfObject*
}

struct FgSurfObjectCreateResults {
  value @0 :UInt64;  # unsigned long long*
}

struct FgSurfObjectDestroyParams {
  object @0 :UInt64;  # CUsurfObject
}

struct FgLaunchParams {
  function @0 :UInt64;  # unsigned long long
  gridX @1 :UInt32;  # unsigned int
  gridY @2 :UInt32;  # unsigned int
  gridZ @3 :UInt32;  # unsigned int
  blockX @4 :UInt32;  # unsigned int
  blockY @5 :UInt32;  # unsigned int
  blockZ @6 :UInt32;  # unsigned int
  sharedBytes @7 :UInt32;  # unsigned int
  stream @8 :UInt64;  # CUstream
  kind @9 :Int32;  # int
  attributeCount @10 :UInt32;  # unsigned int
  attributes @11 :Data;  # const CUlaunchAttribute*
  parameterBytes @12 :UInt32;  # unsigned int
  parameters @13 :Data;  # const void*
}

struct FgLaunchMultiDeviceParams {
  count @0 :UInt32;  # unsigned int
  launches @1 :Data;  # const CUDA_LAUNCH_PARAMS*
  flags @2 :UInt32;  # unsigned int
  parameterBytes @3 :UInt32;  # unsigned int
  parameters @4 :Data;  # const void*
}

struct FgCopyParams {
  copy @0 :Data;  # const void*
  copyBytes @1 :UInt64;  # size_t
  stream @2 :UInt64;  # CUstream
  srcBytes @3 :UInt64;  # size_t
}

struct FgCopyWaitParams {
  copy @0 :Data;  # const void*
  copyBytes @1 :UInt64;  # size_t
  stream @2 :UInt64;  # CUstream
  dstBytes @3 :UInt64;  # size_t
}

struct FgRemoteProbeParams {
  bytes @0 :UInt64;  # size_t
}

struct FgDeliveredParams {
  id @0 :UInt64;  # unsigned long long
}

struct FgFetchedParams {
  id @0 :UInt64;  # unsigned long long
  offset @1 :UInt64;  # unsigned long long
  bytes @2 :UInt64;  # size_t
}

struct FgAmendParams {
  id @0 :UInt64;  # unsigned long long
  bytes @1 :UInt64;  # size_t
}

struct FgDirectProbeParams {}

struct FgDirectProbeResults {
  way @0 :Int32;  # int*
  fromBytes @1 :UInt64;  # unsigned long long*
  reason @2 :Text;
}

struct FgMeetDeliveriesParams {
  id @0 :UInt64;  # unsigned long long
  stream @1 :UInt64;  # CUstream
}

struct FgHostCallParams {
  stream @0 :UInt64;  # CUstream
  id @1 :UInt64;  # unsigned long long
  withStatus @2 :Int32;  # int
}

struct FgQueueMarkParams {
  stream @0 :UInt64;  # CUstream
  ticket @1 :UInt64;  # unsigned long long
}

struct FgStreamSynchronizeParams {
  stream @0 :UInt64;  # CUstream
  word @1 :UInt64;  # unsigned long long
  onDevice @2 :UInt64;  # CUdeviceptr
  value @3 :UInt32;  # unsigned int
}

struct FgStreamCreateParams {
  kind @0 :UInt32;  # unsigned int
  flags @1 :UInt32;  # unsigned int
  priority @2 :Int32;  # int
  stream @3 :UInt64;  # CUstream*
}

struct FgHostReserveParams {
  address @0 :UInt64;  # unsigned long long
  bytes @1 :UInt64;  # size_t
}

struct FgHostMapParams {
  address @0 :UInt64;  # unsigned long long
  bytes @1 :UInt64;  # size_t
  flags @2 :UInt32;  # unsigned int
}

struct FgHostMapResults {
  devicePointer @0 :UInt64;  # CUdeviceptr*
}

struct FgHostUnmapParams {
  address @0 :UInt64;  # unsigned long long
}

struct FgPagesPushParams {
  runsBytes @0 :UInt64;  # size_t
}

struct FgPagesPushChangesParams {
  runsBytes @0 :UInt64;  # size_t
}

struct FgPagesFetchParams {
  from @0 :UInt64;  # unsigned long long
  maxBytes @1 :UInt64;  # size_t
}

struct FgPagesFetchResults {
  next @0 :UInt64;  # unsigned long long*
  pushes @1 :UInt64;  # unsigned long long*
  runsBytes @2 :UInt64;  # size_t*
}

struct FgPagesOnDemandParams {
  address @0 :UInt64;  # unsigned long long
  onDemand @1 :Int32;  # int
}

struct FgPagesFetchPartParams {
  address @0 :UInt64;  # unsigned long long
  bytes @1 :UInt64;  # size_t
  maxBytes @2 :UInt64;  # size_t
}

struct FgPagesFetchPartResults {
  next @0 :UInt64;  # unsigned long long*
  pushes @1 :UInt64;  # unsigned long long*
  runsBytes @2 :UInt64;  # size_t*
}

struct FgHostShareParams {
  address @0 :UInt64;  # unsigned long long
  bytes @1 :UInt64;  # size_t
  number @2 :UInt64;  # unsigned long long
}

struct FgHostShareResults {
  devicePointer @0 :UInt64;  # CUdeviceptr*
}

struct FgHostUnshareParams {
  address @0 :UInt64;  # unsigned long long
}

struct FgPrimaryRetainParams {
  dev @0 :Int32;  # CUdevice
  flags @1 :UInt32;  # unsigned int
}

struct FgPrimaryReleaseParams {
  dev @0 :Int32;  # CUdevice
  reset @1 :Int32;  # int
}

struct FgContextCreateParams {
  context @0 :UInt32;  # unsigned int
  dev @1 :Int32;  # CUdevice
  flags @2 :UInt32;  # unsigned int
}

struct FgContextDestroyParams {
  context @0 :UInt32;  # unsigned int
}

struct FgGreenCreateParams {
  green @0 :UInt64;  # CUgreenCtx*
  desc @1 :UInt64;  # CUdevResourceDesc
  dev @2 :Int32;  # CUdevice
  flags @3 :UInt32;  # unsigned int
  context @4 :UInt32;  # unsigned int
}

struct FgGreenDestroyParams {
  context @0 :UInt32;  # unsigned int
}

struct FgResourceSplitParams {
  wanted @0 :UInt32;  # unsigned int
  input @1 :Data;  # const CUdevResource*
  flags @2 :UInt32;  # unsigned int
  minCount @3 :UInt32;  # unsigned int
  query @4 :Int32;  # int
}

struct FgResourceSplitResults {
  groups @0 :Data;  # CUdevResource*
  made @1 :UInt32;  # unsigned int*
  rest @2 :Data;  # CUdevResource*
}

struct FgGraphPieceParams {
  exec @0 :UInt64;  # unsigned long long
  pieceBytes @1 :UInt64;  # size_t
}

struct FgGraphInstantiateParams {
  graphBytes @0 :UInt64;  # size_t
  flags @1 :UInt64;  # unsigned long long
  base @2 :UInt64;  # unsigned long long
  exec @3 :UInt64;  # unsigned long long
}

struct FgGraphInstantiateResults {
  outcome @0 :Int32;  # int*
  found @1 :Int32;  # int*
  errorPlace @2 :UInt32;  # unsigned int*
}

struct FgGraphValueParams {
  exec @0 :UInt64;  # CUgraphExec
}

struct FgGraphValueResults {
  value @0 :UInt64;  # unsigned long long*
}

struct FgGraphUpdateParams {
  exec @0 :UInt64;  # CUgraphExec
  graphBytes @1 :UInt64;  # size_t
}

struct FgGraphUpdateResults {
  outcome @0 :Int32;  # int*
  found @1 :Int32;  # int*
  errorPlace @2 :UInt32;  # unsigned int*
  errorFromPlace @3 :UInt32;  # unsigned int*
}

struct FgGraphUpdateFromParams {
  exec @0 :UInt64;  # CUgraphExec
  base @1 :UInt64;  # unsigned long long
  graphBytes @2 :UInt64;  # size_t
}

struct FgGraphUpdateFromResults {
  outcome @0 :Int32;  # int*
  found @1 :Int32;  # int*
  errorPlace @2 :UInt32;  # unsigned int*
  errorFromPlace @3 :UInt32;  # unsigned int*
}

struct FgGraphSetNodeParams {
  exec @0 :UInt64;  # CUgraphExec
  place @1 :UInt32;  # unsigned int
  graphBytes @2 :UInt64;  # size_t
}

struct FgGraphSetKernelParams {
  exec @0 :UInt64;  # CUgraphExec
  place @1 :UInt32;  # unsigned int
  function @2 :UInt64;  # unsigned long long
  gridX @3 :UInt32;  # unsigned int
  gridY @4 :UInt32;  # unsigned int
  gridZ @5 :UInt32;  # unsigned int
  blockX @6 :UInt32;  # unsigned int
  blockY @7 :UInt32;  # unsigned int
  blockZ @8 :UInt32;  # unsigned int
  sharedBytes @9 :UInt32;  # unsigned int
  parameterBytes @10 :UInt32;  # unsigned int
  parameters @11 :Data;  # const void*
}

struct FgGraphEnableNodeParams {
  exec @0 :UInt64;  # CUgraphExec
  place @1 :UInt32;  # unsigned int
  enabled @2 :UInt32;  # unsigned int
}

struct FgGraphLaunchParams {
  exec @0 :UInt64;  # CUgraphExec
  stream @1 :UInt64;  # CUstream
  hostCallCount @2 :UInt32;  # unsigned int
  hostCalls @3 :Data;  # const unsigned long long*
}

struct FgGraphUploadParams {
  exec @0 :UInt64;  # CUgraphExec
  stream @1 :UInt64;  # CUstream
}

struct FgGraphExecDestroyParams {
  exec @0 :UInt64;  # CUgraphExec
}

struct FgGraphAllocateParams {
  graph @0 :UInt64;  # unsigned long long
  pool @1 :Data;  # const CUmemPoolProps*
  access @2 :Data;  # const CUmemAccessDesc*
  accessCount @3 :UInt64;  # size_t
  bytes @4 :UInt64;  # size_t
}

struct FgGraphAllocateResults {
  address @0 :UInt64;  # CUdeviceptr*
  number @1 :UInt32;  # unsigned int*
}

struct FgGraphConditionalParams {
  graph @0 :UInt64;  # unsigned long long
  initial @1 :UInt32;  # unsigned int
  flags @2 :UInt32;  # unsigned int
}

struct FgGraphConditionalResults {
  handle @0 :UInt64;  # unsigned long long*
}

struct FgGraphUpdatableParams {
  graph @0 :UInt64;  # unsigned long long
  nodeBytes @1 :UInt64;  # size_t
}

struct FgGraphUpdatableResults {
  deviceNode @0 :UInt64;  # unsigned long long*
  number @1 :UInt32;  # unsigned int*
}

struct FgGraphEndParams {
  graph @0 :UInt64;  # unsigned long long
}

struct FgTimelineStartParams {
  records @0 :UInt64;  # unsigned long long
}

struct FgTimelineClockParams {}

struct FgTimelineClockResults {
  nanoseconds @0 :UInt64;  # unsigned long long*
}

struct FgTimelineTakeParams {
  mostBytes @0 :UInt64;  # size_t
}

struct FgTimelineTakeResults {
  bytes @0 :UInt64;  # size_t*
  dropped @1 :UInt64;  # unsigned long long*
}

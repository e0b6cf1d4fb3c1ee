#include "client/process/silent_calls.h"

#include <array>

#include "generated/schema/opcodes.h"

namespace fargpu::client {
namespace {

// Not here, although they look like it: what the description calls `drains`, where a driver may
// wait for its streams; amounts of memory in use, which change with frees in stream order; and
// cuMemAllocAsync, whose address may be one that another stream has freed by now.
constexpr uint16_t kSilent[] = {
    // What does not change.
    schema::op_cuCtxGetLimit,
    schema::op_cuCtxGetCacheConfig,
    schema::op_cuCtxGetSharedMemConfig,
    schema::op_cuCtxGetExecAffinity,
    schema::op_cuCtxGetDevResource,
    schema::op_cuDeviceGetDevResource,
    schema::op_cuDeviceGetTexture1DLinearMaxWidth,
    schema::op_cuDeviceGetHostAtomicCapabilities,
    schema::op_cuDeviceGetExecAffinitySupport,
    schema::op_cuDeviceGetDefaultMemPool,
    schema::op_cuDeviceCanAccessPeer,
    schema::op_cuDeviceGetP2PAttribute,
    schema::op_cuDeviceGetP2PAtomicCapabilities,
    schema::op_cuStreamGetPriority,
    schema::op_cuStreamGetId,
    schema::op_cuStreamGetFlags,
    schema::op_cuMemGetAddressRange_v2,
    schema::op_cuMemGetAccess,
    schema::op_cuMemGetAllocationGranularity,
    schema::op_cuMemGetAllocationPropertiesFromHandle,
    schema::op_cuMemPoolGetAccess,
    schema::op_cuArrayGetSparseProperties,
    schema::op_cuMipmappedArrayGetSparseProperties,
    schema::op_cuArrayGetMemoryRequirements,
    schema::op_cuMipmappedArrayGetMemoryRequirements,
    schema::op_fgImageGet,
    schema::op_fgImageNames,
    // Computed from the arguments.
    schema::op_cuDevResourceGenerateDesc,
    schema::op_cuTensorMapEncodeTiled,
    schema::op_cuTensorMapEncodeIm2col,
    schema::op_cuTensorMapEncodeIm2colWide,
    schema::op_cuTensorMapReplaceAddress,
    // Something new, which no work uses yet. That there is room is no word about frees.
    schema::op_cuMemAlloc_v2,
    schema::op_cuMemAllocPitch_v2,
    schema::op_cuArrayCreate_v2,
    schema::op_cuArray3DCreate_v2,
    schema::op_cuMipmappedArrayCreate,
    schema::op_cuMipmappedArrayGetLevel,
    schema::op_cuArrayGetPlane,
    schema::op_cuMemAddressReserve,
    schema::op_cuMemCreate,
    schema::op_cuMemMap,
    schema::op_cuMemSetAccess,
    schema::op_cuMemPoolCreate,
    schema::op_cuGreenCtxStreamCreate,
    schema::op_fgStreamCreate,
    schema::op_fgTexObjectCreate,
    schema::op_fgSurfObjectCreate,
    schema::op_fgImageUploaded,
    schema::op_fgLibraryLoad,
};

constexpr auto kTable = [] {
  std::array<bool, schema::kOpcodeEnd> table{};
  for (const uint16_t each : kSilent) table[each] = true;
  return table;
}();

}  // namespace

bool tells_nothing(uint16_t opcode) { return opcode < kTable.size() && kTable[opcode]; }

}  // namespace fargpu::client

// Device memory: allocation, information, address ranges.
#include "sim/object/api.h"

using namespace fargpu::sim;

namespace {

constexpr size_t kPitchAlignment = 512;

CUresult allocate(Context& context, CUdeviceptr* dptr, size_t bytes) {
  if (dptr == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  DeviceMemory& memory = context.device().memory();
  const uint64_t address = memory.allocate(bytes);
  if (address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  Allocation allocation = owned_by(context);
  allocation.base = address;
  allocation.bytes = bytes;
  if (!Driver::get().allocations().insert(allocation)) {
    memory.free(address, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *dptr = address;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult CUDAAPI cuMemGetInfo_v2(size_t* free, size_t* total) {
  return with_context([&](Context& context) -> CUresult {
    if (free != nullptr) *free = context.device().memory().available();
    if (total != nullptr) *total = context.device().memory().total();
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  return with_context([&](Context& context) { return allocate(context, dptr, bytesize); });
}

CUresult CUDAAPI cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes,
                                    size_t Height, unsigned int ElementSizeBytes) {
  return with_context([&](Context& context) -> CUresult {
    const bool element = ElementSizeBytes == 4 || ElementSizeBytes == 8 || ElementSizeBytes == 16;
    if (dptr == nullptr || pPitch == nullptr || WidthInBytes == 0 || Height == 0 || !element) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (WidthInBytes >
        static_cast<size_t>(context.device().attribute(CU_DEVICE_ATTRIBUTE_MAX_PITCH))) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const size_t pitch = (WidthInBytes + kPitchAlignment - 1) / kPitchAlignment * kPitchAlignment;
    if (Height > SIZE_MAX / pitch) return CUDA_ERROR_OUT_OF_MEMORY;
    if (CUresult result = allocate(context, dptr, pitch * Height); result != CUDA_SUCCESS)
      return result;
    *pPitch = pitch;
    return CUDA_SUCCESS;
  });
}

// Also for pool and managed memory. Waits for the context, so that no work is left that uses the
// memory.
CUresult CUDAAPI cuMemFree_v2(CUdeviceptr dptr) {
  return with_context([&](Context& context) -> CUresult {
    if (dptr == 0) return CUDA_SUCCESS;
    AllocationMap& allocations = Driver::get().allocations();
    const auto found = allocations.find(dptr);
    const bool freeable =
        found && found->base == dptr && !found->is_variable &&
        (!found->opened || found->pool != 0) &&
        (found->kind == Allocation::Kind::kDevice || found->kind == Allocation::Kind::kManaged);
    if (!freeable) return CUDA_ERROR_INVALID_VALUE;
    if (found->freeing) return CUDA_ERROR_INVALID_VALUE;
    if (found->graph) {
      const auto block = Driver::get().device(found->device)->graph_memory().find(dptr);
      if (!block || !block->owner.claim_free(*block)) return CUDA_ERROR_INVALID_VALUE;
      quiesce(context, *found);
      block->owner.end(*block);
      return context.error();
    }
    quiesce(context, *found);
    if (auto allocation = allocations.erase(dptr)) Driver::get().release(*allocation);
    return context.error();
  });
}

// The GPU has no engine for it, as it says itself.
CUresult CUDAAPI cuMemBatchDecompressAsync(CUmemDecompressParams*, size_t, unsigned int, size_t*,
                                           CUstream stream) {
  return with_stream(stream, [](Context&, const auto&) { return CUDA_ERROR_NOT_SUPPORTED; });
}

CUresult CUDAAPI cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
  return with_context([&](Context&) -> CUresult {
    const auto found = Driver::get().allocations().find(dptr);
    if (!found) return CUDA_ERROR_NOT_FOUND;
    if (pbase != nullptr) *pbase = found->base;
    if (psize != nullptr) *psize = found->bytes;
    return CUDA_SUCCESS;
  });
}

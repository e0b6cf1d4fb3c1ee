// Calls in captured streams that copy and fill memory, or make and free it.
#include "client/capture/captures.h"
#include "client/graph/typed_params.h"
#include "client/manual/common.h"
#include "client/memory/memory_source.h"
#include "client/transfer/endpoint.h"

namespace fargpu::client {
namespace {

CUresult capture_copy(const CUDA_MEMCPY3D& copy, CUstream stream) {
  Context* const context = context_of(stream);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return capture::add(stream, copy_params(copy, context->handle()));
}

// So many bytes in one row.
CUDA_MEMCPY3D bytes_between(CUmemorytype from, CUmemorytype to, size_t bytes) {
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = from;
  copy.dstMemoryType = to;
  copy.WidthInBytes = bytes;
  copy.Height = copy.Depth = 1;
  return copy;
}

CUresult check_device(CUdeviceptr address, size_t bytes, CUstream stream) {
  if (address == 0) return CUDA_ERROR_INVALID_VALUE;
  Session& session = CallTarget::of(stream).session;
  return check_range(session, device_end(session, {address}), bytes);
}

// `width` elements of `element` bytes in each of `height` rows.
CUresult capture_fill(CUdeviceptr to, size_t pitch, unsigned value, unsigned element, size_t width,
                      size_t height, CUstream stream) {
  if (width == 0 || height == 0) return CUDA_SUCCESS;
  Context* const context = context_of(stream);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return capture::add(stream,
                      fill_params({to, pitch, value, element, width, height}, context->handle()));
}

CUresult capture_allocation(CUdeviceptr* address, size_t bytes, int device, CUstream stream) {
  if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams given = of_type(CU_GRAPH_NODE_TYPE_MEM_ALLOC);
  given.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  given.alloc.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  given.alloc.bytesize = bytes;
  NodeParams params;
  CUresult result = NodeParams::take(given, &params);
  CUgraphNode made = nullptr;
  if (result == CUDA_SUCCESS) result = capture::add(stream, std::move(params), false, &made);
  if (result != CUDA_SUCCESS) return result;
  const GraphLock lock;
  const GraphNode* const node = find_node(made);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;  // destroyed at the same time
  *address = node->params.get().alloc.dptr;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult captured_cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount,
                                       CUstream hStream) {
  if (ByteCount == 0) return CUDA_SUCCESS;
  if (srcHost == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_device(dstDevice, ByteCount, hStream); result != CUDA_SUCCESS)
    return result;
  CUDA_MEMCPY3D copy = bytes_between(CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE, ByteCount);
  copy.srcHost = srcHost;
  copy.dstDevice = dstDevice;
  return capture_copy(copy, hStream);
}

CUresult captured_cuMemcpyDtoHAsync_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount,
                                       CUstream hStream) {
  if (ByteCount == 0) return CUDA_SUCCESS;
  if (dstHost == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check_device(srcDevice, ByteCount, hStream); result != CUDA_SUCCESS)
    return result;
  CUDA_MEMCPY3D copy = bytes_between(CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, ByteCount);
  copy.srcDevice = srcDevice;
  copy.dstHost = dstHost;
  return capture_copy(copy, hStream);
}

CUresult captured_cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void* srcHost,
                                       size_t ByteCount, CUstream hStream) {
  if (ByteCount == 0) return CUDA_SUCCESS;
  CUDA_MEMCPY3D copy = bytes_between(CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_ARRAY, ByteCount);
  copy.srcHost = srcHost;
  copy.dstArray = dstArray;
  copy.dstXInBytes = dstOffset;
  return capture_copy(copy, hStream);
}

CUresult captured_cuMemcpyAtoHAsync_v2(void* dstHost, CUarray srcArray, size_t srcOffset,
                                       size_t ByteCount, CUstream hStream) {
  if (ByteCount == 0) return CUDA_SUCCESS;
  CUDA_MEMCPY3D copy = bytes_between(CU_MEMORYTYPE_ARRAY, CU_MEMORYTYPE_HOST, ByteCount);
  copy.srcArray = srcArray;
  copy.srcXInBytes = srcOffset;
  copy.dstHost = dstHost;
  return capture_copy(copy, hStream);
}

CUresult captured_cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice,
                                       size_t ByteCount, CUstream hStream) {
  if (ByteCount == 0) return CUDA_SUCCESS;
  for (const CUdeviceptr address : {dstDevice, srcDevice}) {
    const CUresult result = check_device(address, ByteCount, hStream);
    if (result != CUDA_SUCCESS) return result;
  }
  CUDA_MEMCPY3D copy = bytes_between(CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_DEVICE, ByteCount);
  copy.srcDevice = srcDevice;
  copy.dstDevice = dstDevice;
  return capture_copy(copy, hStream);
}

CUresult captured_cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount,
                                CUstream hStream) {
  if (ByteCount == 0) return CUDA_SUCCESS;
  CUDA_MEMCPY3D copy = bytes_between(CU_MEMORYTYPE_UNIFIED, CU_MEMORYTYPE_UNIFIED, ByteCount);
  copy.srcDevice = src;
  copy.dstDevice = dst;
  return capture_copy(copy, hStream);
}

CUresult captured_cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* pCopy, CUstream hStream) {
  if (pCopy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_MEMCPY2D& flat = *pCopy;
  if (flat.WidthInBytes == 0 || flat.Height == 0) return CUDA_SUCCESS;
  CUDA_MEMCPY3D copy = bytes_between(flat.srcMemoryType, flat.dstMemoryType, flat.WidthInBytes);
  copy.srcXInBytes = flat.srcXInBytes;
  copy.srcY = flat.srcY;
  copy.srcHost = flat.srcHost;
  copy.srcDevice = flat.srcDevice;
  copy.srcArray = flat.srcArray;
  copy.srcPitch = flat.srcPitch;
  copy.dstXInBytes = flat.dstXInBytes;
  copy.dstY = flat.dstY;
  copy.dstHost = flat.dstHost;
  copy.dstDevice = flat.dstDevice;
  copy.dstArray = flat.dstArray;
  copy.dstPitch = flat.dstPitch;
  copy.Height = flat.Height;
  return capture_copy(copy, hStream);
}

CUresult captured_cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* pCopy, CUstream hStream) {
  if (pCopy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (pCopy->WidthInBytes == 0 || pCopy->Height == 0 || pCopy->Depth == 0) return CUDA_SUCCESS;
  return capture_copy(*pCopy, hStream);
}

CUresult captured_cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N,
                                  CUstream hStream) {
  return capture_fill(dstDevice, 0, uc, 1, N, 1, hStream);
}

CUresult captured_cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N,
                                   CUstream hStream) {
  return capture_fill(dstDevice, 0, us, 2, N, 1, hStream);
}

CUresult captured_cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N,
                                   CUstream hStream) {
  return capture_fill(dstDevice, 0, ui, 4, N, 1, hStream);
}

CUresult captured_cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc,
                                    size_t Width, size_t Height, CUstream hStream) {
  return capture_fill(dstDevice, dstPitch, uc, 1, Width, Height, hStream);
}

CUresult captured_cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us,
                                     size_t Width, size_t Height, CUstream hStream) {
  return capture_fill(dstDevice, dstPitch, us, 2, Width, Height, hStream);
}

CUresult captured_cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui,
                                     size_t Width, size_t Height, CUstream hStream) {
  return capture_fill(dstDevice, dstPitch, ui, 4, Width, Height, hStream);
}

CUresult captured_cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  const Context* const context = context_of(hStream);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return capture_allocation(dptr, bytesize, context->device, hStream);
}

// The memory is the graph's own; of the pool it has the device.
CUresult captured_cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                          CUstream hStream) {
  const auto* const source = static_cast<const MemorySource*>(CallTarget::of(hStream).session.find(
      rpc::HandleKind::kMemPool, reinterpret_cast<uint64_t>(pool)));
  if (source == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return capture_allocation(dptr, bytesize, source->device.load(std::memory_order_relaxed),
                            hStream);
}

CUresult captured_cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
  return capture::add(hStream, free_params(dptr));
}

}  // namespace fargpu::client

// Copies in one dimension.
#include "sim/driver/api.h"
#include "sim/driver/copy.h"

using namespace fargpu::sim;

namespace {

using Where = CopySide::Where;

uint64_t number(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

CUresult copy_bytes(CUstream stream, Where to_where, uint64_t to, Where from_where, uint64_t from, size_t bytes,
                    bool synchronous) {
  return with_stream(stream, [&](Context& context, const std::shared_ptr<Stream>& target) {
    Copy copy;
    copy.to = {to_where, to, bytes, bytes};
    copy.from = {from_where, from, bytes, bytes};
    copy.width = bytes;
    return submit_copy(context, target, copy, synchronous);
  });
}

// The contexts of a peer copy must exist; addresses say the rest.
CUresult check_peers(CUcontext to, CUcontext from) {
  if (!Driver::initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  Driver& driver = Driver::get();
  return driver.find_context(to) && driver.find_context(from) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

}  // namespace

CUresult CUDAAPI cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount) {
  return copy_bytes(nullptr, Where::kDevice, dstDevice, Where::kHost, number(srcHost), ByteCount, true);
}
CUresult CUDAAPI cuMemcpyDtoH_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  return copy_bytes(nullptr, Where::kHost, number(dstHost), Where::kDevice, srcDevice, ByteCount, true);
}
CUresult CUDAAPI cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
  return copy_bytes(nullptr, Where::kDevice, dstDevice, Where::kDevice, srcDevice, ByteCount, true);
}
CUresult CUDAAPI cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
  return copy_bytes(nullptr, Where::kUnified, dst, Where::kUnified, src, ByteCount, true);
}
CUresult CUDAAPI cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
                              size_t ByteCount) {
  if (CUresult result = check_peers(dstContext, srcContext); result != CUDA_SUCCESS) return result;
  return copy_bytes(nullptr, Where::kDevice, dstDevice, Where::kDevice, srcDevice, ByteCount, true);
}

CUresult CUDAAPI cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount, CUstream hStream) {
  return copy_bytes(hStream, Where::kDevice, dstDevice, Where::kHost, number(srcHost), ByteCount, false);
}
CUresult CUDAAPI cuMemcpyDtoHAsync_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream) {
  return copy_bytes(hStream, Where::kHost, number(dstHost), Where::kDevice, srcDevice, ByteCount, false);
}
CUresult CUDAAPI cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream) {
  return copy_bytes(hStream, Where::kDevice, dstDevice, Where::kDevice, srcDevice, ByteCount, false);
}
CUresult CUDAAPI cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) {
  return copy_bytes(hStream, Where::kUnified, dst, Where::kUnified, src, ByteCount, false);
}
CUresult CUDAAPI cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                                   CUcontext srcContext, size_t ByteCount, CUstream hStream) {
  if (CUresult result = check_peers(dstContext, srcContext); result != CUDA_SUCCESS) return result;
  return copy_bytes(hStream, Where::kDevice, dstDevice, Where::kDevice, srcDevice, ByteCount, false);
}

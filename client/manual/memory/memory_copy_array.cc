// Copies of a part of an array's first row.
#include "client/manual/memory/copies.h"

namespace fargpu::client {
namespace {

// An end of such a copy: an array with an offset, or memory.
struct End {
  CUarray array = nullptr;
  uint64_t at = 0;
  bool on_device = true;

  CUresult resolve(Session& session, Endpoint* end) const {
    if (on_device && array == nullptr && at == 0) return CUDA_ERROR_INVALID_VALUE;
    if (array != nullptr) return array_end(session, array, at, 0, 0, end);
    *end = on_device ? device_end(session, {at}) : host_end(session, {at});
    return at == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  }
  // Host memory may be device memory: addresses are unified.
  CUdeviceptr address() const { return array == nullptr ? at : 0; }
};

End on_device(CUdeviceptr address) { return {nullptr, address, true}; }
End on_host(const void* pointer) { return {nullptr, address_of(pointer), false}; }

CUresult copy(const End& dst, const End& src, size_t bytes, CUstream stream, bool wait) {
  return at_arrays(stream, dst.array, src.array, dst.address(), src.address(),
                   [&](const CallTarget& target) -> CUresult {
                     Endpoint to, from;
                     CUresult result = dst.resolve(target.session, &to);
                     if (result == CUDA_SUCCESS) result = src.resolve(target.session, &from);
                     if (result != CUDA_SUCCESS) return result;
                     const copy::Shape shape{bytes};
                     return copy_between(
                         target, to, from, shape, stream, wait, SourceAccess::kInStream,
                         [&] { return copy_arrays(target, to, from, shape, stream); });
                   });
}

}  // namespace

#define FARGPU_NEEDS_ARRAY(array) \
  if ((array) == nullptr) return CUDA_ERROR_INVALID_VALUE

CUresult manual_cuMemcpyDtoA_v2(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice,
                                size_t ByteCount) {
  FARGPU_NEEDS_ARRAY(dstArray);
  return copy({dstArray, dstOffset}, on_device(srcDevice), ByteCount, nullptr, true);
}

CUresult manual_cuMemcpyAtoD_v2(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset,
                                size_t ByteCount) {
  FARGPU_NEEDS_ARRAY(srcArray);
  return copy(on_device(dstDevice), {srcArray, srcOffset}, ByteCount, nullptr, true);
}

CUresult manual_cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray,
                                size_t srcOffset, size_t ByteCount) {
  FARGPU_NEEDS_ARRAY(dstArray);
  FARGPU_NEEDS_ARRAY(srcArray);
  return copy({dstArray, dstOffset}, {srcArray, srcOffset}, ByteCount, nullptr, true);
}

CUresult manual_cuMemcpyHtoA_v2(CUarray dstArray, size_t dstOffset, const void* srcHost,
                                size_t ByteCount) {
  FARGPU_NEEDS_ARRAY(dstArray);
  return copy({dstArray, dstOffset}, on_host(srcHost), ByteCount, nullptr, true);
}

CUresult manual_cuMemcpyAtoH_v2(void* dstHost, CUarray srcArray, size_t srcOffset,
                                size_t ByteCount) {
  FARGPU_NEEDS_ARRAY(srcArray);
  return copy(on_host(dstHost), {srcArray, srcOffset}, ByteCount, nullptr, true);
}

CUresult manual_cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void* srcHost,
                                     size_t ByteCount, CUstream hStream) {
  FARGPU_NEEDS_ARRAY(dstArray);
  return copy({dstArray, dstOffset}, on_host(srcHost), ByteCount, hStream, false);
}

CUresult manual_cuMemcpyAtoHAsync_v2(void* dstHost, CUarray srcArray, size_t srcOffset,
                                     size_t ByteCount, CUstream hStream) {
  FARGPU_NEEDS_ARRAY(srcArray);
  return copy(on_host(dstHost), {srcArray, srcOffset}, ByteCount, hStream, false);
}

#undef FARGPU_NEEDS_ARRAY

}  // namespace fargpu::client

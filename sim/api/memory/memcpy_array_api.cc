// Copies of a part of an array's first row.
#include "sim/object/api.h"
#include "sim/work/array_side.h"
#include "sim/work/copy.h"

using namespace fargpu::sim;

namespace {

struct End {
  CUarray array = nullptr;  // null: memory at the address
  uint64_t place = 0;       // the address, or an offset in the array
  CopySide::Where where = CopySide::Where::kArray;
};

End in_array(CUarray array, size_t offset) { return {array, offset, CopySide::Where::kArray}; }
End on_device(CUdeviceptr address) { return {nullptr, address, CopySide::Where::kDevice}; }
End on_host(const void* address) {
  return {nullptr, reinterpret_cast<uint64_t>(address), CopySide::Where::kHost};
}

CUresult copy_bytes(const End& to, const End& from, size_t bytes, CUstream stream,
                    bool synchronous) {
  return with_stream(stream,
                     [&](Context& context, const std::shared_ptr<Stream>& target) -> CUresult {
                       Copy copy;
                       copy.width = bytes;
                       const auto set = [&copy, bytes](const End& end, CopySide* side) {
                         if (end.where == CopySide::Where::kArray)
                           return set_array(end.array, end.place, 0, 0, copy, side);
                         *side = {end.where, end.place, bytes, bytes, nullptr};
                         return CUDA_SUCCESS;
                       };
                       if (CUresult result = set(to, &copy.to); result != CUDA_SUCCESS)
                         return result;
                       if (CUresult result = set(from, &copy.from); result != CUDA_SUCCESS)
                         return result;
                       return submit_copy(context, target, copy, synchronous);
                     });
}

}  // namespace

CUresult CUDAAPI cuMemcpyDtoA_v2(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice,
                                 size_t ByteCount) {
  return copy_bytes(in_array(dstArray, dstOffset), on_device(srcDevice), ByteCount, nullptr, true);
}
CUresult CUDAAPI cuMemcpyAtoD_v2(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset,
                                 size_t ByteCount) {
  return copy_bytes(on_device(dstDevice), in_array(srcArray, srcOffset), ByteCount, nullptr, true);
}
CUresult CUDAAPI cuMemcpyHtoA_v2(CUarray dstArray, size_t dstOffset, const void* srcHost,
                                 size_t ByteCount) {
  return copy_bytes(in_array(dstArray, dstOffset), on_host(srcHost), ByteCount, nullptr, true);
}
CUresult CUDAAPI cuMemcpyAtoH_v2(void* dstHost, CUarray srcArray, size_t srcOffset,
                                 size_t ByteCount) {
  return copy_bytes(on_host(dstHost), in_array(srcArray, srcOffset), ByteCount, nullptr, true);
}
CUresult CUDAAPI cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray,
                                 size_t srcOffset, size_t ByteCount) {
  return copy_bytes(in_array(dstArray, dstOffset), in_array(srcArray, srcOffset), ByteCount,
                    nullptr, true);
}
CUresult CUDAAPI cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void* srcHost,
                                      size_t ByteCount, CUstream hStream) {
  return copy_bytes(in_array(dstArray, dstOffset), on_host(srcHost), ByteCount, hStream, false);
}
CUresult CUDAAPI cuMemcpyAtoHAsync_v2(void* dstHost, CUarray srcArray, size_t srcOffset,
                                      size_t ByteCount, CUstream hStream) {
  return copy_bytes(on_host(dstHost), in_array(srcArray, srcOffset), ByteCount, hStream, false);
}

// Copies in one dimension.
#include <algorithm>

#include "sim/object/api.h"
#include "sim/work/copy.h"

using namespace fargpu::sim;

namespace {

using Where = CopySide::Where;

uint64_t number(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

CUresult copy_bytes(CUstream stream, Where to_where, uint64_t to, Where from_where, uint64_t from,
                    size_t bytes, bool synchronous, bool take_source = false) {
  return with_stream(stream, [&](Context& context, const std::shared_ptr<Stream>& target) {
    Copy copy;
    copy.to = {to_where, to, bytes, bytes, nullptr};
    copy.from = {from_where, from, bytes, bytes, nullptr};
    copy.width = bytes;
    copy.take_source = take_source;
    return submit_copy(context, target, copy, synchronous);
  });
}

// A batch has attributes for runs of its copies: run i begins at copy starts[i], the first at 0.
bool valid_runs(const size_t* starts, size_t runs, size_t copies) {
  if (starts == nullptr || runs == 0 || runs > copies || starts[0] != 0) return false;
  for (size_t i = 1; i < runs; ++i) {
    if (starts[i] <= starts[i - 1] || starts[i] >= copies) return false;
  }
  return true;
}

bool is_known(const CUmemcpyAttributes& attributes) {
  return attributes.srcAccessOrder >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM &&
         attributes.srcAccessOrder <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY &&
         (attributes.flags & ~static_cast<unsigned>(CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE)) ==
             0;
}

// One copy after the other, which is an order that a batch allows. `failed` receives the index of a
// copy that was refused.
CUresult copy_batch(CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count,
                    const CUmemcpyAttributes* attributes, const size_t* starts, size_t runs,
                    CUstream stream, size_t* failed) {
  *failed = SIZE_MAX;
  if (to == nullptr || from == nullptr || sizes == nullptr || count == 0 || attributes == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  if (!valid_runs(starts, runs, count) || stream == nullptr || stream == CU_STREAM_LEGACY)
    return CUDA_ERROR_INVALID_VALUE;
  if (std::find(sizes, sizes + count, 0) != sizes + count ||
      !std::all_of(attributes, attributes + runs, is_known))
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0, run = 0; i < count; ++i) {
    while (run + 1 < runs && starts[run + 1] <= i) ++run;
    const bool during_call =
        attributes[run].srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
    const CUresult result = copy_bytes(stream, Where::kUnified, to[i], Where::kUnified, from[i],
                                       sizes[i], false, during_call);
    if (result == CUDA_SUCCESS) continue;
    *failed = i;
    return result;
  }
  return CUDA_SUCCESS;
}

// The contexts of a peer copy must exist, if they are named; addresses say the rest.
CUresult check_peers(CUcontext to, CUcontext from) {
  if (!Driver::initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  const auto is_possible = [](CUcontext context) {
    return context == nullptr || find_context(context);
  };
  return is_possible(to) && is_possible(from) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

}  // namespace

CUresult CUDAAPI cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount) {
  return copy_bytes(nullptr, Where::kDevice, dstDevice, Where::kHost, number(srcHost), ByteCount,
                    true);
}
CUresult CUDAAPI cuMemcpyDtoH_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  return copy_bytes(nullptr, Where::kHost, number(dstHost), Where::kDevice, srcDevice, ByteCount,
                    true);
}
CUresult CUDAAPI cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
  return copy_bytes(nullptr, Where::kDevice, dstDevice, Where::kDevice, srcDevice, ByteCount, true);
}
CUresult CUDAAPI cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
  return copy_bytes(nullptr, Where::kUnified, dst, Where::kUnified, src, ByteCount, true);
}
CUresult CUDAAPI cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                              CUcontext srcContext, size_t ByteCount) {
  if (CUresult result = check_peers(dstContext, srcContext); result != CUDA_SUCCESS) return result;
  return copy_bytes(nullptr, Where::kDevice, dstDevice, Where::kDevice, srcDevice, ByteCount, true);
}

CUresult CUDAAPI cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount,
                                      CUstream hStream) {
  return copy_bytes(hStream, Where::kDevice, dstDevice, Where::kHost, number(srcHost), ByteCount,
                    false);
}
CUresult CUDAAPI cuMemcpyDtoHAsync_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount,
                                      CUstream hStream) {
  return copy_bytes(hStream, Where::kHost, number(dstHost), Where::kDevice, srcDevice, ByteCount,
                    false);
}
CUresult CUDAAPI cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice,
                                      size_t ByteCount, CUstream hStream) {
  return copy_bytes(hStream, Where::kDevice, dstDevice, Where::kDevice, srcDevice, ByteCount,
                    false);
}
CUresult CUDAAPI cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount,
                               CUstream hStream) {
  return copy_bytes(hStream, Where::kUnified, dst, Where::kUnified, src, ByteCount, false);
}
CUresult CUDAAPI cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext,
                                   CUdeviceptr srcDevice, CUcontext srcContext, size_t ByteCount,
                                   CUstream hStream) {
  if (CUresult result = check_peers(dstContext, srcContext); result != CUDA_SUCCESS) return result;
  return copy_bytes(hStream, Where::kDevice, dstDevice, Where::kDevice, srcDevice, ByteCount,
                    false);
}

CUresult CUDAAPI cuMemcpyBatchAsync(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes,
                                    size_t count, CUmemcpyAttributes* attrs, size_t* attrsIdxs,
                                    size_t numAttrs, size_t* failIdx, CUstream hStream) {
  size_t failed = SIZE_MAX;
  const CUresult result =
      copy_batch(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream, &failed);
  if (failIdx != nullptr) *failIdx = failed;
  return result;
}
CUresult CUDAAPI cuMemcpyBatchAsync_v2(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes,
                                       size_t count, CUmemcpyAttributes* attrs, size_t* attrsIdxs,
                                       size_t numAttrs, CUstream hStream) {
  size_t failed = SIZE_MAX;
  return copy_batch(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream, &failed);
}

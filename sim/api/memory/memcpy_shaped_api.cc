// Copies in two and three dimensions.
#include <memory>
#include <type_traits>

#include "sim/object/api.h"
#include "sim/object/array.h"
#include "sim/work/array_side.h"
#include "sim/work/copy.h"
#include "sim/work/copy_params.h"

using namespace fargpu::sim;

namespace {

CUresult run(const Copy& copy, CUresult converted, CUstream stream, bool synchronous) {
  return with_stream(
      stream, [&](Context& context, const std::shared_ptr<Stream>& target) -> CUresult {
        return converted != CUDA_SUCCESS ? converted
                                         : submit_copy(context, target, copy, synchronous);
      });
}

// As a node of a graph has it: also fields that the copy does not use.
std::shared_ptr<const CUDA_MEMCPY3D> in_three(const CUDA_MEMCPY2D& p) {
  auto out = std::make_shared<CUDA_MEMCPY3D>();
  *out = {};
  out->srcXInBytes = p.srcXInBytes;
  out->srcY = p.srcY;
  out->srcMemoryType = p.srcMemoryType;
  out->srcHost = p.srcHost;
  out->srcDevice = p.srcDevice;
  out->srcArray = p.srcArray;
  out->srcPitch = p.srcPitch;
  out->dstXInBytes = p.dstXInBytes;
  out->dstY = p.dstY;
  out->dstMemoryType = p.dstMemoryType;
  out->dstHost = p.dstHost;
  out->dstDevice = p.dstDevice;
  out->dstArray = p.dstArray;
  out->dstPitch = p.dstPitch;
  out->WidthInBytes = p.WidthInBytes;
  out->Height = p.Height;
  out->Depth = 1;
  return out;
}

CUresult copy_2d(const CUDA_MEMCPY2D* params, CUstream stream, bool synchronous) {
  Copy copy;
  const CUresult converted = params != nullptr ? to_copy(*params, &copy) : CUDA_ERROR_INVALID_VALUE;
  if (converted == CUDA_SUCCESS) copy.described = in_three(*params);
  return run(copy, converted, stream, synchronous);
}

template <typename Params>
CUresult copy_3d(const Params* params, CUstream stream, bool synchronous) {
  Copy copy;
  const CUresult converted = params != nullptr ? to_copy(*params, &copy) : CUDA_ERROR_INVALID_VALUE;
  if constexpr (std::is_same_v<Params, CUDA_MEMCPY3D>) {
    if (converted == CUDA_SUCCESS) copy.described = std::make_shared<CUDA_MEMCPY3D>(*params);
  }
  return run(copy, converted, stream, synchronous);
}

// The bytes of an element: those of an array on either side, else 1. 0: two arrays that differ, or
// no array.
uint64_t element_bytes(const CUDA_MEMCPY3D_BATCH_OP& op) {
  uint64_t bytes = 0;
  for (const CUmemcpy3DOperand* operand : {&op.src, &op.dst}) {
    if (operand->type != CU_MEMCPY_OPERAND_TYPE_ARRAY || !Driver::initialized()) continue;
    const auto array = Driver::get().registry().find<Array>(operand->op.array.array);
    if (!array || array->is_planar()) return 0;
    const uint64_t own = array->image().format.element_bytes();
    if (bytes != 0 && bytes != own) return 0;
    bytes = own;
  }
  return bytes == 0 ? 1 : bytes;
}

// An operand of a batch; its extents are in elements.
CUresult side_of(const CUmemcpy3DOperand& operand, uint64_t element, Copy* copy, CopySide* side) {
  if (operand.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
    const CUoffset3D& offset = operand.op.array.offset;
    return set_array(operand.op.array.array, offset.x * element, offset.y, offset.z, *copy, side);
  }
  if (operand.type != CU_MEMCPY_OPERAND_TYPE_POINTER) return CUDA_ERROR_INVALID_VALUE;
  const auto& rows = operand.op.ptr;
  if (rows.rowLength != 0 && rows.rowLength < copy->width / element)
    return CUDA_ERROR_INVALID_VALUE;
  if (rows.layerHeight != 0 && rows.layerHeight < copy->height) return CUDA_ERROR_INVALID_VALUE;
  side->where = CopySide::Where::kUnified;
  side->base = rows.ptr;
  size_t pitch = 0;
  if (__builtin_mul_overflow(rows.rowLength, element, &pitch)) return CUDA_ERROR_INVALID_VALUE;
  return place_side(side, 0, 0, 0, pitch, rows.layerHeight, *copy) ? CUDA_SUCCESS
                                                                   : CUDA_ERROR_INVALID_VALUE;
}

CUresult to_copy_of_batch(const CUDA_MEMCPY3D_BATCH_OP& op, Copy* copy) {
  const uint64_t element = element_bytes(op);
  if (element == 0 || __builtin_mul_overflow(op.extent.width, element, &copy->width))
    return CUDA_ERROR_INVALID_VALUE;
  copy->height = op.extent.height;
  copy->depth = op.extent.depth;
  copy->take_source = op.srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
  const bool known_order = op.srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
                           op.srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_ANY || copy->take_source;
  if (!known_order || op.flags > CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE)
    return CUDA_ERROR_INVALID_VALUE;
  if (copy->empty()) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = side_of(op.src, element, copy, &copy->from);
  return result == CUDA_SUCCESS ? side_of(op.dst, element, copy, &copy->to) : result;
}

// One copy after the other, which is an order that a batch allows, once all are known to be well
// described. `failed` receives the index of a copy that was refused.
CUresult copy_batch(const CUDA_MEMCPY3D_BATCH_OP* ops, size_t count, unsigned long long flags,
                    CUstream stream, size_t* failed) {
  *failed = SIZE_MAX;
  if (ops == nullptr || count == 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (stream == nullptr || stream == CU_STREAM_LEGACY) return CUDA_ERROR_INVALID_VALUE;
  for (const bool submit : {false, true}) {
    for (size_t i = 0; i < count; ++i) {
      Copy copy;
      CUresult result = to_copy_of_batch(ops[i], &copy);
      if (submit) result = run(copy, result, stream, false);
      if (result == CUDA_SUCCESS) continue;
      *failed = i;
      return result;
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult CUDAAPI cuMemcpy2D_v2(const CUDA_MEMCPY2D* pCopy) { return copy_2d(pCopy, nullptr, true); }
CUresult CUDAAPI cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* pCopy) {
  return copy_2d(pCopy, nullptr, true);
}
CUresult CUDAAPI cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* pCopy, CUstream hStream) {
  return copy_2d(pCopy, hStream, false);
}
CUresult CUDAAPI cuMemcpy3D_v2(const CUDA_MEMCPY3D* pCopy) { return copy_3d(pCopy, nullptr, true); }
CUresult CUDAAPI cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* pCopy, CUstream hStream) {
  return copy_3d(pCopy, hStream, false);
}
CUresult CUDAAPI cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* pCopy) {
  return copy_3d(pCopy, nullptr, true);
}
CUresult CUDAAPI cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* pCopy, CUstream hStream) {
  return copy_3d(pCopy, hStream, false);
}

CUresult CUDAAPI cuMemcpy3DBatchAsync(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList,
                                      size_t* failIdx, unsigned long long flags, CUstream hStream) {
  size_t failed = SIZE_MAX;
  const CUresult result = copy_batch(opList, numOps, flags, hStream, &failed);
  if (failIdx != nullptr) *failIdx = failed;
  return result;
}
CUresult CUDAAPI cuMemcpy3DBatchAsync_v2(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList,
                                         unsigned long long flags, CUstream hStream) {
  size_t failed = SIZE_MAX;
  return copy_batch(opList, numOps, flags, hStream, &failed);
}

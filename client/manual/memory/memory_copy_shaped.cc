// Copies in two and three dimensions, also in batches, between memory and arrays.
#include "client/manual/memory/copies.h"
#include "common/base/log.h"
#include "schema/support/array_size.h"

namespace fargpu::client {
namespace {

// The address of one side of a described copy; 0: it is an array. That of host memory may be one of
// device memory: addresses are unified.
CUdeviceptr address_of_side(CUmemorytype type, CUdeviceptr device, const void* host) {
  if (type == CU_MEMORYTYPE_ARRAY) return 0;
  return type == CU_MEMORYTYPE_HOST ? address_of(host) : device;
}

// One side of a described copy.
struct Side {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  CUarray array;
  size_t x, y, pitch;
  size_t z = 0, height = 0;

  bool is_array() const { return type == CU_MEMORYTYPE_ARRAY; }
  copy::Part part() const {
    return {type == CU_MEMORYTYPE_HOST ? address_of(host) : device, x, y, z, pitch, height};
  }
};

// CUDA_MEMCPY2D, CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER name their members alike.
template <typename Copy>
constexpr bool kHasSlices = requires(Copy copy) {
  copy.Depth;
};

template <typename Copy>
copy::Shape shape_of(const Copy& copy) {
  if constexpr (kHasSlices<Copy>)
    return {copy.WidthInBytes, copy.Height, copy.Depth};
  else
    return {copy.WidthInBytes, copy.Height, 1};
}

CUresult resolve(Session& session, const Side& side, const copy::Shape& shape, Endpoint* end) {
  if (side.is_array()) return array_end(session, side.array, side.x, side.y, side.z, end);
  const copy::Part part = side.part();
  copy::Rows rows;
  if (part.address == 0 || !place(part, shape, &rows)) return CUDA_ERROR_INVALID_VALUE;
  switch (side.type) {
    case CU_MEMORYTYPE_HOST:
      *end = host_end(session, rows);
      return CUDA_SUCCESS;
    case CU_MEMORYTYPE_DEVICE:
      *end = device_end(session, rows);
      return CUDA_SUCCESS;
    case CU_MEMORYTYPE_UNIFIED:
      *end = unified_end(session, rows);
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

template <typename Copy>
CUresult resolve(Session& session, const Copy& copy, Endpoint* dst, Endpoint* src) {
  const copy::Shape shape = shape_of(copy);
  Side to{copy.dstMemoryType, copy.dstHost, copy.dstDevice, copy.dstArray,
          copy.dstXInBytes,   copy.dstY,    copy.dstPitch};
  Side from{copy.srcMemoryType, copy.srcHost, copy.srcDevice, copy.srcArray,
            copy.srcXInBytes,   copy.srcY,    copy.srcPitch};
  if constexpr (kHasSlices<Copy>) {
    if (copy.dstLOD != 0 || copy.srcLOD != 0) return CUDA_ERROR_INVALID_VALUE;
    to.z = copy.dstZ;
    to.height = copy.dstHeight;
    from.z = copy.srcZ;
    from.height = copy.srcHeight;
  }
  const CUresult result = resolve(session, to, shape, dst);
  return result == CUDA_SUCCESS ? resolve(session, from, shape, src) : result;
}

// `inside(session, copy)` sends the copy if both ends are device memory.
template <typename Copy, typename Inside>
CUresult copy_described(const Copy* copy, CUstream stream, bool wait, SourceAccess access,
                        Inside&& inside) {
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto carry = [&](const CallTarget& target) -> CUresult {
    Endpoint dst, src;
    if (const CUresult result = resolve(target.session, *copy, &dst, &src); result != CUDA_SUCCESS)
      return result;
    const copy::Shape shape = shape_of(*copy);
    return copy_between(target, dst, src, shape, stream, wait, access, [&]() -> CUresult {
      if (are_of_two_servers(dst, src)) [[unlikely]]
        return copy_between_servers(dst, src, shape, stream);
      if (dst.array != nullptr || src.array != nullptr)
        return copy_arrays(target, dst, src, shape, stream);
      return inside_device(target, dst, src, shape, stream, [&] {
        Copy described = *copy;
        described.dstMemoryType = described.srcMemoryType = CU_MEMORYTYPE_DEVICE;
        described.dstHost = nullptr;
        described.srcHost = nullptr;
        described.dstArray = nullptr;
        described.srcArray = nullptr;
        // Also of managed memory that was given as host memory; offsets remain.
        if (copy->dstMemoryType == CU_MEMORYTYPE_HOST)
          described.dstDevice = address_of(copy->dstHost);
        if (copy->srcMemoryType == CU_MEMORYTYPE_HOST)
          described.srcDevice = address_of(copy->srcHost);
        const CUresult result = inside(target.session, described);
        return result == CUDA_SUCCESS ? await_managed(target.session, stream, dst, src) : result;
      });
    });
  };
  const auto array_of = [](CUmemorytype type, CUarray array) {
    return type == CU_MEMORYTYPE_ARRAY ? array : nullptr;
  };
  return at_arrays(stream, array_of(copy->dstMemoryType, copy->dstArray),
                   array_of(copy->srcMemoryType, copy->srcArray),
                   address_of_side(copy->dstMemoryType, copy->dstDevice, copy->dstHost),
                   address_of_side(copy->srcMemoryType, copy->srcDevice, copy->srcHost), carry);
}

CUresult copy_2d(const CUDA_MEMCPY2D* copy, CUstream stream, bool wait) {
  return copy_described(copy, stream, wait, SourceAccess::kInStream,
                        [&](Session& session, const CUDA_MEMCPY2D& inside) {
                          return call_cuMemcpy2DAsync_v2(session, stream_context_id(stream),
                                                         &inside, stream);
                        });
}

CUresult copy_3d(const CUDA_MEMCPY3D* copy, CUstream stream, bool wait,
                 SourceAccess access = SourceAccess::kInStream) {
  return copy_described(
      copy, stream, wait, access, [&](Session& session, const CUDA_MEMCPY3D& inside) {
        return call_cuMemcpy3DAsync_v2(session, stream_context_id(stream), &inside, stream);
      });
}

CUresult copy_3d_peer(const CUDA_MEMCPY3D_PEER* copy, CUstream stream, bool wait) {
  const bool arrays = copy != nullptr && (copy->srcMemoryType == CU_MEMORYTYPE_ARRAY ||
                                          copy->dstMemoryType == CU_MEMORYTYPE_ARRAY);
  if (arrays && copy->srcContext != copy->dstContext) {
    log::warn("cuMemcpy3DPeer: arrays are not copied from one context to another");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return copy_described(
      copy, stream, wait, SourceAccess::kInStream,
      [&](Session& session, CUDA_MEMCPY3D_PEER& inside) -> CUresult {
        const Context* ends[2] = {};
        // Contexts travel as their ids.
        for (size_t i = 0; i < 2; ++i) {
          CUcontext& context = i == 0 ? inside.dstContext : inside.srcContext;
          context = named_context(context, stream);
          uint64_t id = 0;
          const CUresult result = handle_to_wire(session, rpc::HandleKind::kContext, context, &id);
          if (result != CUDA_SUCCESS) return result;
          context = reinterpret_cast<CUcontext>(id);
          ends[i] = session.find_context(static_cast<uint16_t>(id));
        }
        return between_contexts(session, ends[0], ends[1], stream, [&] {
          return call_cuMemcpy3DPeerAsync(session, stream_context_id(stream), &inside, stream);
        });
      });
}

// The bytes of an element: those of the arrays' elements, else 1. 0: arrays that do not fit each
// other, or are none.
uint64_t element_bytes(const Session& session, const CUDA_MEMCPY3D_BATCH_OP& op) {
  uint64_t bytes = 0;
  for (const CUmemcpy3DOperand* const operand : {&op.src, &op.dst}) {
    if (operand->type != CU_MEMCPY_OPERAND_TYPE_ARRAY) continue;
    const auto* const array = static_cast<Array*>(
        session.find(rpc::HandleKind::kArray, reinterpret_cast<uint64_t>(operand->op.array.array)));
    if (array == nullptr) return 0;
    const uint64_t own =
        schema::array_element_bytes(array->descriptor.Format, array->descriptor.NumChannels);
    if (own == 0 || (bytes != 0 && bytes != own)) return 0;
    bytes = own;
  }
  return bytes == 0 ? 1 : bytes;
}

// One operand of a copy of a 3D batch, whose extents are in elements.
struct BatchSide {
  CUmemorytype type;
  CUdeviceptr address;
  CUarray array;
  size_t x, y, z, pitch, height;
};

CUresult resolve(const CUmemcpy3DOperand& operand, const CUextent3D& extent, uint64_t element,
                 BatchSide* side) {
  *side = {};
  if (operand.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
    const auto& part = operand.op.array;
    side->type = CU_MEMORYTYPE_ARRAY;
    side->array = part.array;
    side->y = part.offset.y;
    side->z = part.offset.z;
    return __builtin_mul_overflow(part.offset.x, element, &side->x) ? CUDA_ERROR_INVALID_VALUE
                                                                    : CUDA_SUCCESS;
  }
  const auto& memory = operand.op.ptr;
  if (operand.type != CU_MEMCPY_OPERAND_TYPE_POINTER ||
      (memory.rowLength != 0 && memory.rowLength < extent.width) ||
      (memory.layerHeight != 0 && memory.layerHeight < extent.height) ||
      __builtin_mul_overflow(memory.rowLength, element, &side->pitch)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  side->type = CU_MEMORYTYPE_UNIFIED;
  side->address = memory.ptr;
  side->height = memory.layerHeight;
  return CUDA_SUCCESS;
}

CUresult to_copy(const Session& session, const CUDA_MEMCPY3D_BATCH_OP& op, CUDA_MEMCPY3D* copy) {
  const CUextent3D& extent = op.extent;
  const uint64_t element = element_bytes(session, op);
  if (extent.width == 0 || extent.height == 0 || extent.depth == 0 || element == 0 ||
      op.srcAccessOrder < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
      op.srcAccessOrder > CU_MEMCPY_SRC_ACCESS_ORDER_ANY ||
      (op.flags & ~static_cast<unsigned>(CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE)) != 0 ||
      __builtin_mul_overflow(extent.width, element, &copy->WidthInBytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  copy->Height = extent.height;
  copy->Depth = extent.depth;
  BatchSide src, dst;
  CUresult result = resolve(op.src, extent, element, &src);
  if (result == CUDA_SUCCESS) result = resolve(op.dst, extent, element, &dst);
  if (result != CUDA_SUCCESS) return result;
  copy->srcMemoryType = src.type;
  copy->srcDevice = src.address;
  copy->srcArray = src.array;
  copy->srcXInBytes = src.x;
  copy->srcY = src.y;
  copy->srcZ = src.z;
  copy->srcPitch = src.pitch;
  copy->srcHeight = src.height;
  copy->dstMemoryType = dst.type;
  copy->dstDevice = dst.address;
  copy->dstArray = dst.array;
  copy->dstXInBytes = dst.x;
  copy->dstY = dst.y;
  copy->dstZ = dst.z;
  copy->dstPitch = dst.pitch;
  copy->dstHeight = dst.height;
  return CUDA_SUCCESS;
}

// All descriptions are checked before the first copy.
CUresult copy_batch_3d(const CUDA_MEMCPY3D_BATCH_OP* ops, size_t count, unsigned long long flags,
                       size_t* failed, CUstream stream) {
  if (ops == nullptr || count == 0 || flags != 0 || !takes_batches(stream))
    return CUDA_ERROR_INVALID_VALUE;
  const Session& session = CallTarget::of(stream).session;
  for (const bool send : {false, true}) {
    for (size_t i = 0; i < count; ++i) {
      CUDA_MEMCPY3D copy{};
      CUresult result = to_copy(session, ops[i], &copy);
      if (result == CUDA_SUCCESS && send)
        result = copy_3d(&copy, stream, false, access_by(ops[i].srcAccessOrder));
      if (result == CUDA_SUCCESS) continue;
      *failed = i;
      return result;
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult manual_cuMemcpy2D_v2(const CUDA_MEMCPY2D* pCopy) { return copy_2d(pCopy, nullptr, true); }
CUresult manual_cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* pCopy) {
  return copy_2d(pCopy, nullptr, true);
}
CUresult manual_cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* pCopy, CUstream hStream) {
  return copy_2d(pCopy, hStream, false);
}
CUresult manual_cuMemcpy3D_v2(const CUDA_MEMCPY3D* pCopy) { return copy_3d(pCopy, nullptr, true); }
CUresult manual_cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* pCopy, CUstream hStream) {
  return copy_3d(pCopy, hStream, false);
}
CUresult manual_cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* pCopy) {
  return copy_3d_peer(pCopy, nullptr, true);
}
CUresult manual_cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* pCopy, CUstream hStream) {
  return copy_3d_peer(pCopy, hStream, false);
}

CUresult manual_cuMemcpy3DBatchAsync(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList, size_t* failIdx,
                                     unsigned long long flags, CUstream hStream) {
  size_t failed = SIZE_MAX;
  const CUresult result = copy_batch_3d(opList, numOps, flags, &failed, hStream);
  if (failIdx != nullptr) *failIdx = failed;
  return result;
}

}  // namespace fargpu::client

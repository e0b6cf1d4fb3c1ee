// Copies: the direction is found out here, host data travels as bulk, copies inside the device are
// told to the worker.
#include <algorithm>

#include "client/manual/common.h"
#include "client/transfer/copy.h"
#include "client/transfer/exposure.h"
#include "client/transfer/server_copy.h"

namespace fargpu::client {
namespace {

uint64_t address_of(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

// What a copy between contexts must be ordered behind, and what must be ordered behind it: the
// default streams of both. The worker's streams of different contexts do not wait for each other,
// so this waits.
CUresult wait_for_both(Session& session, const Context* dst, const Context* src) {
  for (const Context* context : {dst, src}) {
    if (context == nullptr || !context->usable()) continue;
    if (const CUresult result = call_cuCtxSynchronize(session, context->wire_id);
        result != CUDA_SUCCESS) {
      return result;
    }
  }
  return CUDA_SUCCESS;
}

// `send()` between two waits when the copy is in a default stream and leaves its context.
template <typename Send>
CUresult between_contexts(Session& session, const Context* dst, const Context* src, CUstream stream,
                          Send&& send) {
  // Host memory belongs to none: the copy is in the order of its stream alone.
  if (dst == src || dst == nullptr || src == nullptr || !is_default_stream(stream)) return send();
  if (const CUresult result = wait_for_both(session, dst, src); result != CUDA_SUCCESS)
    return result;
  if (const CUresult result = send(); result != CUDA_SUCCESS) return result;
  return call_cuStreamSynchronize(session, current_context_id(), stream);
}

const Context* owner_of(const Session& session, const Endpoint& end) {
  if (!end.region) return nullptr;
  return end.region->context != nullptr ? end.region->context
                                        : session.contexts.primary(end.region->device);
}

// Around send(), which enqueues a copy between two device ends.
template <typename Send>
CUresult inside_device(Session& session, const Endpoint& dst, const Endpoint& src,
                       const copy::Shape& shape, Send&& send) {
  for (const Endpoint* end : {&dst, &src}) {
    const uint64_t span = span_of(shape, end->rows);
    if (span == 0) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = check_range(session, *end, span); result != CUDA_SUCCESS)
      return result;
  }
  const CUresult exposed = expose_operands(session, {dst.rows.address, src.rows.address});
  return exposed == CUDA_SUCCESS ? send() : exposed;
}

CUresult device_to_device(Session& session, const Endpoint& dst, const Endpoint& src,
                          uint64_t bytes, CUstream stream) {
  if (are_of_two_servers(dst, src)) [[unlikely]]
    return copy_between_servers(dst, src, {bytes}, stream);
  return inside_device(session, dst, src, {bytes}, [&] {
    return between_contexts(session, owner_of(session, dst), owner_of(session, src), stream, [&] {
      return call_cuMemcpyDtoDAsync_v2(session, current_context_id(), dst.rows.address,
                                       src.rows.address, bytes, stream);
    });
  });
}

// By where both ends are; inside() is for two device ends.
template <typename Inside>
CUresult copy_between(const CallTarget& target, const Endpoint& dst, const Endpoint& src,
                      const copy::Shape& shape, CUstream stream, bool wait, SourceAccess access,
                      Inside&& inside) {
  if (shape.empty()) return CUDA_SUCCESS;
  if (dst.device && src.device) return inside();
  if (dst.device) return copy_to_device(target, dst, src, shape, stream, wait, access);
  if (src.device) return copy_to_host(target, dst, src, shape, stream, wait);
  return copy_on_host(target, dst.rows, src.rows, shape, stream);
}

CUresult host_to_device(CUdeviceptr dst, const void* src, size_t bytes, CUstream stream,
                        bool wait) {
  if (bytes == 0) return CUDA_SUCCESS;
  if (src == nullptr || dst == 0) return CUDA_ERROR_INVALID_VALUE;
  return at_memory(stream, dst, 0, [&](const CallTarget& target) {
    return copy_to_device(target, device_end(target.session, {dst}),
                          host_end(target.session, {address_of(src)}), {bytes}, stream, wait);
  });
}

CUresult device_to_host(void* dst, CUdeviceptr src, size_t bytes, CUstream stream, bool wait) {
  if (bytes == 0) return CUDA_SUCCESS;
  if (dst == nullptr || src == 0) return CUDA_ERROR_INVALID_VALUE;
  return at_memory(stream, src, 0, [&](const CallTarget& target) {
    return copy_to_host(target, host_end(target.session, {address_of(dst)}),
                        device_end(target.session, {src}), {bytes}, stream, wait);
  });
}

// Unified addresses: both sides may be anything.
CUresult copy_any(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream, bool wait,
                  SourceAccess access = SourceAccess::kInStream) {
  if (bytes == 0) return CUDA_SUCCESS;
  return at_memory(stream, dst, src, [&](const CallTarget& target) {
    const Endpoint to = unified_end(target.session, {dst}),
                   from = unified_end(target.session, {src});
    return copy_between(target, to, from, {bytes}, stream, wait, access,
                        [&] { return device_to_device(target.session, to, from, bytes, stream); });
  });
}

// A device address of a described copy; 0: that side is none.
CUdeviceptr device_address(CUmemorytype type, CUdeviceptr address) {
  return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED ? address : 0;
}

// One side of a described copy.
struct Side {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  CUarray array;
  size_t x, y, pitch;
  size_t z = 0, height = 0;

  // Pitch 0 means tight rows, height 0 tight slices.
  copy::Rows rows(const copy::Shape& shape) const {
    const uint64_t row = pitch == 0 ? shape.width : pitch;
    return {type == CU_MEMORYTYPE_HOST ? address_of(host) : device, row,
            row * (height == 0 ? shape.height : height)};
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
  if (side.type == CU_MEMORYTYPE_ARRAY)
    return side.array == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_NOT_SUPPORTED;
  copy::Rows rows = side.rows(shape);
  if (rows.address == 0) return CUDA_ERROR_INVALID_VALUE;
  rows = rows.at(side.x, side.y, side.z);
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
  } else if (shape.height > 1 && (to.rows(shape).pitch < shape.width + to.x ||
                                  from.rows(shape).pitch < shape.width + from.x)) {
    return CUDA_ERROR_INVALID_VALUE;
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
      return inside_device(target.session, dst, src, shape, [&] {
        Copy described = *copy;
        described.dstMemoryType = described.srcMemoryType = CU_MEMORYTYPE_DEVICE;
        described.dstHost = nullptr;
        described.srcHost = nullptr;
        described.dstArray = nullptr;
        described.srcArray = nullptr;
        return inside(target.session, described);
      });
    });
  };
  return at_memory(stream, device_address(copy->dstMemoryType, copy->dstDevice),
                   device_address(copy->srcMemoryType, copy->srcDevice), carry);
}

CUresult copy_2d(const CUDA_MEMCPY2D* copy, CUstream stream, bool wait) {
  return copy_described(copy, stream, wait, SourceAccess::kInStream,
                        [&](Session& session, const CUDA_MEMCPY2D& inside) {
                          return call_cuMemcpy2DAsync_v2(session, current_context_id(), &inside,
                                                         stream);
                        });
}

CUresult copy_3d(const CUDA_MEMCPY3D* copy, CUstream stream, bool wait,
                 SourceAccess access = SourceAccess::kInStream) {
  return copy_described(
      copy, stream, wait, access, [&](Session& session, const CUDA_MEMCPY3D& inside) {
        return call_cuMemcpy3DAsync_v2(session, current_context_id(), &inside, stream);
      });
}

CUresult copy_3d_peer(const CUDA_MEMCPY3D_PEER* copy, CUstream stream, bool wait) {
  return copy_described(
      copy, stream, wait, SourceAccess::kInStream,
      [&](Session& session, CUDA_MEMCPY3D_PEER& inside) -> CUresult {
        const Context* ends[2] = {};
        // Contexts travel as their ids.
        for (size_t i = 0; i < 2; ++i) {
          CUcontext& context = i == 0 ? inside.dstContext : inside.srcContext;
          uint64_t id = 0;
          const CUresult result = handle_to_wire(session, rpc::HandleKind::kContext, context, &id);
          if (result != CUDA_SUCCESS) return result;
          context = reinterpret_cast<CUcontext>(id);
          ends[i] = session.find_context(static_cast<uint16_t>(id));
        }
        return between_contexts(session, ends[0], ends[1], stream, [&] {
          return call_cuMemcpy3DPeerAsync(session, current_context_id(), &inside, stream);
        });
      });
}

// Natively only streams of the application's own take a batch.
bool takes_batches(CUstream stream) { return stream != nullptr && stream != CU_STREAM_LEGACY; }

SourceAccess access_by(CUmemcpySrcAccessOrder order) {
  return order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL ? SourceAccess::kDuringCall
                                                             : SourceAccess::kInStream;
}

// What the application says of the copies of a batch: of which memory they are (no use for that
// here), and when their sources may be read.
struct BatchAttributes {
  const CUmemcpyAttributes* attributes;
  const size_t* firsts;  // attributes[i] are those of the copies from firsts[i] on
  size_t count;

  SourceAccess access_of(size_t copy) const {
    if (attributes == nullptr || firsts == nullptr) return SourceAccess::kInStream;
    const auto end = std::upper_bound(firsts, firsts + count, copy);
    if (end == firsts) return SourceAccess::kInStream;
    return access_by(attributes[end - firsts - 1].srcAccessOrder);
  }
};

CUresult copy_batch(const CUdeviceptr* dsts, const CUdeviceptr* srcs, const size_t* sizes,
                    size_t count, const BatchAttributes& attributes, size_t* failed,
                    CUstream stream) {
  if (dsts == nullptr || srcs == nullptr || sizes == nullptr || count == 0 ||
      !takes_batches(stream)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < count; ++i) {
    if (const CUresult result =
            copy_any(dsts[i], srcs[i], sizes[i], stream, false, attributes.access_of(i));
        result != CUDA_SUCCESS) {
      *failed = i;
      return result;
    }
  }
  return CUDA_SUCCESS;
}

// One operand of a copy of a 3D batch; in the copy of bytes between two addresses an element is a
// byte.
CUresult resolve(const CUmemcpy3DOperand& operand, const CUextent3D& extent, CUmemorytype* type,
                 CUdeviceptr* address, size_t* pitch, size_t* height) {
  if (operand.type == CU_MEMCPY_OPERAND_TYPE_ARRAY)
    return operand.op.array.array == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
  const auto& memory = operand.op.ptr;
  if (operand.type != CU_MEMCPY_OPERAND_TYPE_POINTER ||
      (memory.rowLength != 0 && memory.rowLength < extent.width) ||
      (memory.layerHeight != 0 && memory.layerHeight < extent.height)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *type = CU_MEMORYTYPE_UNIFIED;
  *address = memory.ptr;
  *pitch = memory.rowLength;
  *height = memory.layerHeight;
  return CUDA_SUCCESS;
}

CUresult to_copy(const CUDA_MEMCPY3D_BATCH_OP& op, CUDA_MEMCPY3D* copy) {
  const CUextent3D& extent = op.extent;
  if (extent.width == 0 || extent.height == 0 || extent.depth == 0 ||
      op.srcAccessOrder < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
      op.srcAccessOrder > CU_MEMCPY_SRC_ACCESS_ORDER_ANY ||
      (op.flags & ~static_cast<unsigned>(CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  copy->WidthInBytes = extent.width;
  copy->Height = extent.height;
  copy->Depth = extent.depth;
  const CUresult result = resolve(op.src, extent, &copy->srcMemoryType, &copy->srcDevice,
                                  &copy->srcPitch, &copy->srcHeight);
  if (result != CUDA_SUCCESS) return result;
  return resolve(op.dst, extent, &copy->dstMemoryType, &copy->dstDevice, &copy->dstPitch,
                 &copy->dstHeight);
}

// All descriptions are checked before the first copy.
CUresult copy_batch_3d(const CUDA_MEMCPY3D_BATCH_OP* ops, size_t count, unsigned long long flags,
                       size_t* failed, CUstream stream) {
  if (ops == nullptr || count == 0 || flags != 0 || !takes_batches(stream))
    return CUDA_ERROR_INVALID_VALUE;
  for (const bool send : {false, true}) {
    for (size_t i = 0; i < count; ++i) {
      CUDA_MEMCPY3D copy{};
      CUresult result = to_copy(ops[i], &copy);
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

CUresult manual_cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount) {
  return host_to_device(dstDevice, srcHost, ByteCount, nullptr, true);
}

CUresult manual_cuMemcpyDtoH_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  return device_to_host(dstHost, srcDevice, ByteCount, nullptr, true);
}

CUresult manual_cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount,
                                     CUstream hStream) {
  return host_to_device(dstDevice, srcHost, ByteCount, hStream, false);
}

CUresult manual_cuMemcpyDtoHAsync_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount,
                                     CUstream hStream) {
  return device_to_host(dstHost, srcDevice, ByteCount, hStream, false);
}

CUresult manual_cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                                     CUstream hStream) {
  if (ByteCount == 0) return CUDA_SUCCESS;
  if (dstDevice == 0 || srcDevice == 0) return CUDA_ERROR_INVALID_VALUE;
  return at_memory(hStream, dstDevice, srcDevice, [&](const CallTarget& target) {
    return device_to_device(target.session, device_end(target.session, {dstDevice}),
                            device_end(target.session, {srcDevice}), ByteCount, hStream);
  });
}

CUresult manual_cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext,
                                  CUdeviceptr srcDevice, CUcontext srcContext, size_t ByteCount,
                                  CUstream hStream) {
  if (ByteCount == 0) return CUDA_SUCCESS;
  return at_memory(hStream, dstDevice, srcDevice, [&](const CallTarget& target) -> CUresult {
    const Endpoint to = device_end(target.session, {dstDevice});
    const Endpoint from = device_end(target.session, {srcDevice});
    if (are_of_two_servers(to, from)) [[unlikely]] {
      for (const CUcontext context : {dstContext, srcContext}) {
        if (context != nullptr && target.session.contexts.find(context) == nullptr)
          return CUDA_ERROR_INVALID_CONTEXT;
      }
      return copy_between_servers(to, from, {ByteCount}, hStream);
    }
    // One of another session is refused by the call.
    const auto find = [&target](CUcontext ctx) -> const Context* {
      if (ctx == nullptr) return current_context();
      const Context* const context = target.session.contexts.find(ctx);
      return context != nullptr && context->session == &target.session ? context : nullptr;
    };
    const Context *const dst = find(dstContext), *const src = find(srcContext);
    return inside_device(target.session, to, from, {ByteCount}, [&] {
      return between_contexts(target.session, dst, src, hStream, [&] {
        return call_cuMemcpyPeerAsync(target.session, target.context, dstDevice, dstContext,
                                      srcDevice, srcContext, ByteCount, hStream);
      });
    });
  });
}

CUresult manual_cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
  return copy_any(dst, src, ByteCount, nullptr, true);
}

CUresult manual_cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount,
                              CUstream hStream) {
  return copy_any(dst, src, ByteCount, hStream, false);
}

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

CUresult manual_cuMemcpyBatchAsync(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes,
                                   size_t count, CUmemcpyAttributes* attrs, size_t* attrsIdxs,
                                   size_t numAttrs, size_t* failIdx, CUstream hStream) {
  size_t failed = SIZE_MAX;
  const CUresult result =
      copy_batch(dsts, srcs, sizes, count, {attrs, attrsIdxs, numAttrs}, &failed, hStream);
  if (result != CUDA_SUCCESS && failIdx != nullptr) *failIdx = failed;
  return result;
}

CUresult manual_cuMemcpyBatchAsync_v2(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes,
                                      size_t count, CUmemcpyAttributes* attrs, size_t* attrsIdxs,
                                      size_t numAttrs, CUstream hStream) {
  return manual_cuMemcpyBatchAsync(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, nullptr,
                                   hStream);
}

CUresult manual_cuMemcpy3DBatchAsync(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList, size_t* failIdx,
                                     unsigned long long flags, CUstream hStream) {
  size_t failed = SIZE_MAX;
  const CUresult result = copy_batch_3d(opList, numOps, flags, &failed, hStream);
  if (result != CUDA_SUCCESS && failIdx != nullptr) *failIdx = failed;
  return result;
}

CUresult manual_cuMemcpy3DBatchAsync_v2(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList,
                                        unsigned long long flags, CUstream hStream) {
  return manual_cuMemcpy3DBatchAsync(numOps, opList, nullptr, flags, hStream);
}

}  // namespace fargpu::client

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

// Where a copy happens: at its stream; in a default stream at device memory that it names. 0: it
// names no such.
Here here_of(CUstream stream, CUdeviceptr address, CUdeviceptr other = 0) {
  return is_default_stream(stream) ? Here::of_memory(address, other) : Here::of(stream);
}

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

const Context* owner_of(Session& session, CUdeviceptr address) {
  const auto region = session.device_memory.find(address);
  if (!region) return nullptr;
  return region->context != nullptr ? region->context : session.contexts.primary(region->device);
}

CUresult device_to_device(Session& session, CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                          CUstream stream) {
  if (are_of_two_servers(dst, src)) [[unlikely]]
    return copy_between_servers(flat(dst, bytes), flat(src, bytes), line(bytes), stream);
  bool known = false;
  for (const CUdeviceptr address : {dst, src}) {
    if (const CUresult result = check_device_range(session, address, bytes, &known);
        result != CUDA_SUCCESS) {
      return result;
    }
  }
  if (const CUresult result = expose_operands(session, {dst, src}); result != CUDA_SUCCESS)
    return result;
  return between_contexts(session, owner_of(session, dst), owner_of(session, src), stream, [&] {
    return call_cuMemcpyDtoDAsync_v2(session, current_context_id(), dst, src, bytes, stream);
  });
}

// Unified addresses: both sides may be anything.
CUresult copy_any(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream, bool wait,
                  SourceAccess access = SourceAccess::kInStream) {
  if (bytes == 0) return CUDA_SUCCESS;
  const Here here = here_of(stream, dst, src);
  Session& session = here.session;
  const Where to = classify(session, dst), from = classify(session, src);
  if (to == Where::kDevice && from == Where::kDevice)
    return device_to_device(session, dst, src, bytes, stream);
  if (to == Where::kDevice) {
    return copy_to_device(session, flat(dst, bytes), flat(src, bytes), line(bytes), stream, wait,
                          access);
  }
  if (from == Where::kDevice)
    return copy_to_host(session, flat(dst, bytes), flat(src, bytes), line(bytes), stream, wait);
  return copy_on_host(session, flat(dst, bytes), flat(src, bytes), line(bytes), stream);
}

// A device address of a described copy; 0: that side is none.
CUdeviceptr device_address(CUmemorytype type, CUdeviceptr address) {
  return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED ? address : 0;
}
template <typename Copy>
Here here_of(CUstream stream, const Copy& copy) {
  return here_of(stream, device_address(copy.dstMemoryType, copy.dstDevice),
                 device_address(copy.srcMemoryType, copy.srcDevice));
}

struct Ends {
  Side dst, src;
  Where to, from;
};

CUresult resolve_side(Session& session, CUmemorytype type, const void* host, CUdeviceptr device,
                      CUarray array, Side* side, Where* where) {
  switch (type) {
    case CU_MEMORYTYPE_HOST:
      if (host == nullptr) return CUDA_ERROR_INVALID_VALUE;
      *where = Where::kHost;
      side->address = address_of(host);
      return host == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    case CU_MEMORYTYPE_DEVICE:
      *where = Where::kDevice;
      side->address = device;
      return device == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    case CU_MEMORYTYPE_UNIFIED:
      *where = classify(session, device);
      side->address = device;
      return device == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    case CU_MEMORYTYPE_ARRAY:
      return array == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// Pitch 0 means tight rows; a height below the box's means tight slices.
void set_pitches(Side* side, const Box& box, size_t pitch, size_t height) {
  side->pitch = pitch == 0 ? box.width : pitch;
  side->slice = side->pitch * (height == 0 ? box.height : height);
}

// The common part of all boxes: `inside()` sends a copy inside the device.
template <typename Inside>
CUresult copy_box(Session& session, const Ends& ends, const Box& box, CUstream stream, bool wait,
                  Inside&& inside) {
  if (box.empty()) return CUDA_SUCCESS;
  if (ends.to == Where::kDevice && ends.from == Where::kDevice) {
    if (are_of_two_servers(ends.dst.address, ends.src.address)) [[unlikely]]
      return copy_between_servers(ends.dst, ends.src, box, stream);
    const CUresult exposed = expose_operands(session, {ends.dst.address, ends.src.address});
    if (exposed != CUDA_SUCCESS) return exposed;
    bool known = false;
    for (const Side* side : {&ends.dst, &ends.src}) {
      const uint64_t span = span_of(box, *side);
      if (span == 0) return CUDA_ERROR_INVALID_VALUE;
      const CUresult result = check_device_range(session, side->address, span, &known);
      if (result != CUDA_SUCCESS) return result;
    }
    return inside();
  }
  if (ends.to == Where::kDevice)
    return copy_to_device(session, ends.dst, ends.src, box, stream, wait);
  if (ends.from == Where::kDevice)
    return copy_to_host(session, ends.dst, ends.src, box, stream, wait);
  return copy_on_host(session, ends.dst, ends.src, box, stream);
}

CUresult copy_2d(const CUDA_MEMCPY2D* copy, CUstream stream, bool wait) {
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Here here = here_of(stream, *copy);
  Session& session = here.session;
  const Box box{copy->WidthInBytes, copy->Height, 1};
  Ends ends;
  set_pitches(&ends.dst, box, copy->dstPitch, 0);
  set_pitches(&ends.src, box, copy->srcPitch, 0);
  if (ends.dst.pitch < box.width + copy->dstXInBytes ||
      ends.src.pitch < box.width + copy->srcXInBytes) {
    if (box.height > 1) return CUDA_ERROR_INVALID_VALUE;
  }
  CUresult result = resolve_side(session, copy->dstMemoryType, copy->dstHost, copy->dstDevice,
                                 copy->dstArray, &ends.dst, &ends.to);
  if (result != CUDA_SUCCESS) return result;
  result = resolve_side(session, copy->srcMemoryType, copy->srcHost, copy->srcDevice,
                        copy->srcArray, &ends.src, &ends.from);
  if (result != CUDA_SUCCESS) return result;
  ends.dst.address += copy->dstXInBytes + copy->dstY * ends.dst.pitch;
  ends.src.address += copy->srcXInBytes + copy->srcY * ends.src.pitch;
  return copy_box(session, ends, box, stream, wait, [&] {
    CUDA_MEMCPY2D inside = *copy;
    inside.dstMemoryType = inside.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    inside.dstHost = nullptr;
    inside.srcHost = nullptr;
    inside.dstArray = nullptr;
    inside.srcArray = nullptr;
    return call_cuMemcpy2DAsync_v2(session, current_context_id(), &inside, stream);
  });
}

// CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER have the same members but for the contexts.
template <typename Copy>
CUresult ends_3d(Session& session, const Copy& copy, const Box& box, Ends* ends) {
  if (copy.dstLOD != 0 || copy.srcLOD != 0) return CUDA_ERROR_INVALID_VALUE;
  set_pitches(&ends->dst, box, copy.dstPitch, copy.dstHeight);
  set_pitches(&ends->src, box, copy.srcPitch, copy.srcHeight);
  CUresult result = resolve_side(session, copy.dstMemoryType, copy.dstHost, copy.dstDevice,
                                 copy.dstArray, &ends->dst, &ends->to);
  if (result != CUDA_SUCCESS) return result;
  result = resolve_side(session, copy.srcMemoryType, copy.srcHost, copy.srcDevice, copy.srcArray,
                        &ends->src, &ends->from);
  if (result != CUDA_SUCCESS) return result;
  ends->dst.address += copy.dstXInBytes + copy.dstY * ends->dst.pitch + copy.dstZ * ends->dst.slice;
  ends->src.address += copy.srcXInBytes + copy.srcY * ends->src.pitch + copy.srcZ * ends->src.slice;
  return CUDA_SUCCESS;
}

template <typename Copy>
Copy device_only(const Copy& copy) {
  Copy inside = copy;
  inside.dstMemoryType = inside.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  inside.dstHost = nullptr;
  inside.srcHost = nullptr;
  inside.dstArray = nullptr;
  inside.srcArray = nullptr;
  return inside;
}

CUresult copy_3d(const CUDA_MEMCPY3D* copy, CUstream stream, bool wait) {
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Here here = here_of(stream, *copy);
  Session& session = here.session;
  const Box box{copy->WidthInBytes, copy->Height, copy->Depth};
  Ends ends;
  if (const CUresult result = ends_3d(session, *copy, box, &ends); result != CUDA_SUCCESS)
    return result;
  return copy_box(session, ends, box, stream, wait, [&] {
    const CUDA_MEMCPY3D inside = device_only(*copy);
    return call_cuMemcpy3DAsync_v2(session, current_context_id(), &inside, stream);
  });
}

CUresult copy_3d_peer(const CUDA_MEMCPY3D_PEER* copy, CUstream stream, bool wait) {
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Here here = here_of(stream, *copy);
  Session& session = here.session;
  const Box box{copy->WidthInBytes, copy->Height, copy->Depth};
  Ends ends;
  if (const CUresult result = ends_3d(session, *copy, box, &ends); result != CUDA_SUCCESS)
    return result;
  return copy_box(session, ends, box, stream, wait, [&]() -> CUresult {
    CUDA_MEMCPY3D_PEER inside = device_only(*copy);
    // Contexts travel as their ids.
    for (CUcontext* context : {&inside.dstContext, &inside.srcContext}) {
      uint64_t id = 0;
      const CUresult result = handle_to_wire(session, rpc::HandleKind::kContext, *context, &id);
      if (result != CUDA_SUCCESS) return result;
      *context = reinterpret_cast<CUcontext>(id);
    }
    const Context* dst =
        session.find_context(static_cast<uint16_t>(reinterpret_cast<uint64_t>(inside.dstContext)));
    const Context* src =
        session.find_context(static_cast<uint16_t>(reinterpret_cast<uint64_t>(inside.srcContext)));
    return between_contexts(session, dst, src, stream, [&] {
      return call_cuMemcpy3DPeerAsync(session, current_context_id(), &inside, stream);
    });
  });
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
    const auto order = attributes[end - firsts - 1].srcAccessOrder;
    return order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL ? SourceAccess::kDuringCall
                                                               : SourceAccess::kInStream;
  }
};

CUresult copy_batch(const CUdeviceptr* dsts, const CUdeviceptr* srcs, const size_t* sizes,
                    size_t count, const BatchAttributes& attributes, size_t* failed,
                    CUstream stream) {
  if (dsts == nullptr || srcs == nullptr || sizes == nullptr || count == 0)
    return CUDA_ERROR_INVALID_VALUE;
  // Only streams of the application's own are allowed, as natively.
  if (stream == nullptr || stream == CU_STREAM_LEGACY) return CUDA_ERROR_INVALID_VALUE;
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

}  // namespace

CUresult manual_cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount) {
  if (ByteCount == 0) return CUDA_SUCCESS;
  if (srcHost == nullptr || dstDevice == 0) return CUDA_ERROR_INVALID_VALUE;
  const Here here = here_of(nullptr, dstDevice);
  return copy_to_device(here.session, flat(dstDevice, ByteCount),
                        flat(address_of(srcHost), ByteCount), line(ByteCount), nullptr, true);
}

CUresult manual_cuMemcpyDtoH_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  if (ByteCount == 0) return CUDA_SUCCESS;
  if (dstHost == nullptr || srcDevice == 0) return CUDA_ERROR_INVALID_VALUE;
  const Here here = here_of(nullptr, srcDevice);
  return copy_to_host(here.session, flat(address_of(dstHost), ByteCount),
                      flat(srcDevice, ByteCount), line(ByteCount), nullptr, true);
}

CUresult manual_cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount,
                                     CUstream hStream) {
  if (ByteCount == 0) return CUDA_SUCCESS;
  if (srcHost == nullptr || dstDevice == 0) return CUDA_ERROR_INVALID_VALUE;
  const Here here = here_of(hStream, dstDevice);
  return copy_to_device(here.session, flat(dstDevice, ByteCount),
                        flat(address_of(srcHost), ByteCount), line(ByteCount), hStream, false);
}

CUresult manual_cuMemcpyDtoHAsync_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount,
                                     CUstream hStream) {
  if (ByteCount == 0) return CUDA_SUCCESS;
  if (dstHost == nullptr || srcDevice == 0) return CUDA_ERROR_INVALID_VALUE;
  const Here here = here_of(hStream, srcDevice);
  return copy_to_host(here.session, flat(address_of(dstHost), ByteCount),
                      flat(srcDevice, ByteCount), line(ByteCount), hStream, false);
}

CUresult manual_cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                                     CUstream hStream) {
  if (ByteCount == 0) return CUDA_SUCCESS;
  if (dstDevice == 0 || srcDevice == 0) return CUDA_ERROR_INVALID_VALUE;
  const Here here = here_of(hStream, dstDevice, srcDevice);
  return device_to_device(here.session, dstDevice, srcDevice, ByteCount, hStream);
}

CUresult manual_cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext,
                                  CUdeviceptr srcDevice, CUcontext srcContext, size_t ByteCount,
                                  CUstream hStream) {
  if (ByteCount == 0) return CUDA_SUCCESS;
  const Here here = here_of(hStream, dstDevice, srcDevice);
  if (are_of_two_servers(dstDevice, srcDevice)) [[unlikely]] {
    for (const CUcontext context : {dstContext, srcContext}) {
      if (context != nullptr && here.session.contexts.find(context) == nullptr)
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    return copy_between_servers(flat(dstDevice, ByteCount), flat(srcDevice, ByteCount),
                                line(ByteCount), hStream);
  }
  bool known = false;
  for (const CUdeviceptr address : {dstDevice, srcDevice}) {
    const CUresult result = check_device_range(here.session, address, ByteCount, &known);
    if (result != CUDA_SUCCESS) return result;
  }
  if (const CUresult result = expose_operands(here.session, {dstDevice, srcDevice});
      result != CUDA_SUCCESS) {
    return result;
  }
  // One of another session is refused by the call.
  const auto find = [&here](CUcontext ctx) -> const Context* {
    if (ctx == nullptr) return current_context();
    const Context* const context = here.session.contexts.find(ctx);
    return context != nullptr && context->session == &here.session ? context : nullptr;
  };
  const Context *const dst = find(dstContext), *const src = find(srcContext);
  return between_contexts(here.session, dst, src, hStream, [&] {
    return call_cuMemcpyPeerAsync(here.session, here.context, dstDevice, dstContext, srcDevice,
                                  srcContext, ByteCount, hStream);
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

}  // namespace fargpu::client

// Copies of bytes: the direction is found out here, host data travels as bulk, copies inside the
// device are told to the worker.
#include <algorithm>
#include <functional>

#include "client/manual/memory/copies.h"

namespace fargpu::client {
namespace {

CUresult device_to_device(const CallTarget& target, const Endpoint& dst, const Endpoint& src,
                          uint64_t bytes, CUstream stream) {
  Session& session = target.session;
  if (are_of_two_servers(dst, src)) [[unlikely]]
    return copy_between_servers(dst, src, {bytes}, stream);
  const CUresult result = inside_device(target, dst, src, {bytes}, stream, [&] {
    return between_contexts(session, owner_of(session, dst), owner_of(session, src), stream, [&] {
      return call_cuMemcpyDtoDAsync_v2(session, stream_context_id(stream), dst.rows.address,
                                       src.rows.address, bytes, stream);
    });
  });
  return result == CUDA_SUCCESS ? await_managed(session, stream, dst, src) : result;
}

CUresult between_ends(const CallTarget& target, const Endpoint& dst, const Endpoint& src,
                      uint64_t bytes, CUstream stream, bool wait,
                      SourceAccess access = SourceAccess::kInStream) {
  return copy_between(target, dst, src, {bytes}, stream, wait, access,
                      [&] { return device_to_device(target, dst, src, bytes, stream); });
}

// Unified addresses: both sides may be anything.
CUresult copy_any(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream, bool wait,
                  SourceAccess access = SourceAccess::kInStream) {
  if (bytes == 0) return CUDA_SUCCESS;
  if (dst == 0 || src == 0) return CUDA_ERROR_INVALID_VALUE;
  return at_memory(stream, dst, src, [&](const CallTarget& target) {
    return between_ends(target, unified_end(target.session, {dst}),
                        unified_end(target.session, {src}), bytes, stream, wait, access);
  });
}

CUresult host_to_device(CUdeviceptr dst, const void* src, size_t bytes, CUstream stream,
                        bool wait) {
  if (bytes == 0) return CUDA_SUCCESS;
  if (src == nullptr || dst == 0) return CUDA_ERROR_INVALID_VALUE;
  return at_memory(stream, dst, address_of(src), [&](const CallTarget& target) {
    const Endpoint from = host_end(target.session, {address_of(src)});
    if (from.device) [[unlikely]]
      return between_ends(target, unified_end(target.session, {dst}), from, bytes, stream, wait);
    return copy_to_device(target, device_end(target.session, {dst}), from, {bytes}, stream, wait);
  });
}

CUresult device_to_host(void* dst, CUdeviceptr src, size_t bytes, CUstream stream, bool wait) {
  if (bytes == 0) return CUDA_SUCCESS;
  if (dst == nullptr || src == 0) return CUDA_ERROR_INVALID_VALUE;
  return at_memory(stream, src, address_of(dst), [&](const CallTarget& target) {
    const Endpoint to = host_end(target.session, {address_of(dst)});
    if (to.device) [[unlikely]]
      return between_ends(target, to, unified_end(target.session, {src}), bytes, stream, wait);
    return copy_to_host(target, to, device_end(target.session, {src}), {bytes}, stream, wait);
  });
}

// What the application says of the copies of a batch: of which memory they are (no use for that
// here), and when their sources may be read.
struct BatchAttributes {
  const CUmemcpyAttributes* attributes;
  const size_t* firsts;  // attributes[i] are those of the copies from firsts[i] on
  size_t count;

  // Each run of copies has some, the first one from the first copy on.
  bool are_of(size_t copies) const {
    if (attributes == nullptr || firsts == nullptr || count == 0 || count > copies) return false;
    if (firsts[0] != 0 || firsts[count - 1] >= copies) return false;
    return std::adjacent_find(firsts, firsts + count, std::greater_equal()) == firsts + count &&
           std::all_of(attributes, attributes + count, is_known);
  }
  // Of one of the copies.
  SourceAccess access_of(size_t copy) const {
    const auto end = std::upper_bound(firsts, firsts + count, copy);
    return access_by(attributes[end - firsts - 1].srcAccessOrder);
  }

 private:
  static bool is_known(const CUmemcpyAttributes& each) {
    return each.srcAccessOrder >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM &&
           each.srcAccessOrder <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY &&
           (each.flags & ~static_cast<unsigned>(CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE)) == 0;
  }
};

CUresult copy_batch(const CUdeviceptr* dsts, const CUdeviceptr* srcs, const size_t* sizes,
                    size_t count, const BatchAttributes& attributes, size_t* failed,
                    CUstream stream) {
  if (dsts == nullptr || srcs == nullptr || sizes == nullptr || count == 0 ||
      !attributes.are_of(count) || !takes_batches(stream) ||
      std::find(sizes, sizes + count, 0) != sizes + count) {
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
    return device_to_device(target, device_end(target.session, {dstDevice}),
                            device_end(target.session, {srcDevice}), ByteCount, hStream);
  });
}

CUresult manual_cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext,
                                  CUdeviceptr srcDevice, CUcontext srcContext, size_t ByteCount,
                                  CUstream hStream) {
  if (ByteCount == 0) return CUDA_SUCCESS;
  if (dstDevice == 0 || srcDevice == 0) return CUDA_ERROR_INVALID_VALUE;
  return at_memory(hStream, dstDevice, srcDevice, [&](const CallTarget& target) -> CUresult {
    dstContext = named_context(dstContext, hStream);
    srcContext = named_context(srcContext, hStream);
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
      const Context* const context = home_of(target.session.contexts.find(ctx));
      return context != nullptr && context->session == &target.session ? context : nullptr;
    };
    const Context *const dst = find(dstContext), *const src = find(srcContext);
    return inside_device(target, to, from, {ByteCount}, hStream, [&] {
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

CUresult manual_cuMemcpyBatchAsync(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes,
                                   size_t count, CUmemcpyAttributes* attrs, size_t* attrsIdxs,
                                   size_t numAttrs, size_t* failIdx, CUstream hStream) {
  size_t failed = SIZE_MAX;
  const CUresult result =
      copy_batch(dsts, srcs, sizes, count, {attrs, attrsIdxs, numAttrs}, &failed, hStream);
  if (failIdx != nullptr) *failIdx = failed;
  return result;
}

}  // namespace fargpu::client

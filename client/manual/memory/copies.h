// Common parts of all forms of copies: their ends, their order, their route. Below a CallScope; any
// thread.
#pragma once

#include "client/manual/common.h"
#include "client/servers/server_copy.h"
#include "client/transfer/copy.h"
#include "client/transfer/exposure.h"
#include "client/transfer/managed.h"

namespace fargpu::client {

inline uint64_t address_of(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

// In copies.cc. Waits for both contexts; null: none.
CUresult wait_for_both(Session& session, const Context* dst, const Context* src);
// One that a copy between contexts leaves open: that of its stream.
inline CUcontext named_context(CUcontext context, CUstream stream) {
  if (context != nullptr) return context;
  Context* const own = context_of(stream);
  return own == nullptr ? nullptr : own->handle();
}
// The context of the memory; null: not known.
const Context* owner_of(const Session& session, const Endpoint& end);
// Two device ends, one of which is an array. In a default stream it is ordered behind the contexts
// of both ends where they differ.
CUresult copy_arrays(const CallTarget& target, const Endpoint& dst, const Endpoint& src,
                     const copy::Shape& shape, CUstream stream);

// `send()` between two waits when the copy is in a default stream and leaves its context.
template <typename Send>
CUresult between_contexts(Session& session, const Context* dst, const Context* src, CUstream stream,
                          Send&& send) {
  // Host memory belongs to none: the copy is in the order of its stream alone.
  if (dst == src || dst == nullptr || src == nullptr || !is_default_stream(stream)) return send();
  if (const CUresult result = wait_for_both(session, dst, src); result != CUDA_SUCCESS)
    return result;
  if (const CUresult result = send(); result != CUDA_SUCCESS) return result;
  return call_cuStreamSynchronize(session, stream_context_id(stream), stream);
}

// Around send(), which enqueues a copy between two device ends, unless both are host memory.
template <typename Send>
CUresult inside_device(const CallTarget& target, const Endpoint& dst, const Endpoint& src,
                       const copy::Shape& shape, CUstream stream, Send&& send) {
  Session& session = target.session;
  if (!may_write(session, dst)) return CUDA_ERROR_INVALID_VALUE;
  if (is_on_host(session, dst, src, shape)) [[unlikely]]
    return copy_on_host(target, dst, src, shape, stream);
  for (const Endpoint* end : {&dst, &src}) {
    const uint64_t span = span_of(shape, end->rows);
    if (span == 0) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = check_range(session, *end, span); result != CUDA_SUCCESS)
      return result;
  }
  const CUresult exposed = expose_operands(session, {dst.rows.address, src.rows.address});
  if (exposed != CUDA_SUCCESS) return exposed;
  const AskDriver asked(is_unknown(session, dst) || is_unknown(session, src));
  return send();
}

// Whether an array and the memory at the other end are of two servers; says so in the log.
bool are_apart(CUarray dst, CUarray src, CUdeviceptr dst_address, CUdeviceptr src_address);

// As at_memory(), for a copy that may have arrays; null: none. An array is memory of its session.
// CUDA_ERROR_NOT_SUPPORTED: the other end is memory of another server.
template <typename Work>
CUresult at_arrays(CUstream stream, CUarray dst, CUarray src, CUdeviceptr dst_address,
                   CUdeviceptr src_address, Work&& work) {
  if (dst == nullptr && src == nullptr) [[likely]]
    return at_memory(stream, dst_address, src_address, work);
  if (Process::get().session(1) != nullptr) [[unlikely]] {
    if (are_apart(dst, src, dst_address, src_address)) return CUDA_ERROR_NOT_SUPPORTED;
    if (is_default_stream(stream))
      return in_default_stream(stream, dst != nullptr ? dst : src, std::ref(work));
  }
  return work(CallTarget::of(stream));
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
  return copy_on_host(target, dst, src, shape, stream);
}

// Natively only streams of the application's own take a batch.
inline bool takes_batches(CUstream stream) {
  return stream != nullptr && stream != CU_STREAM_LEGACY;
}

inline SourceAccess access_by(CUmemcpySrcAccessOrder order) {
  return order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL ? SourceAccess::kDuringCall
                                                             : SourceAccess::kInStream;
}

}  // namespace fargpu::client

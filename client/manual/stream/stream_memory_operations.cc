// Waiting for and writing values in memory in stream order: the memory may be the application's
// own, which is exposed then. From the first wait on, synchronous copies from pinned memory wait
// (client/transfer/synchronous_copy.h): that is noted before the wait is sent.
#include <vector>

#include "client/manual/common.h"
#include "client/transfer/exposure.h"
#include "schema/support/cuda_rules.h"

namespace fargpu::client {
namespace {

using schema::is_wait;

// `send(session, context)` after the operand's memory was exposed.
template <typename Send>
CUresult with_operand(CUstream stream, CUdeviceptr address, Send&& send) {
  const CallTarget target = CallTarget::of(stream);
  if (const CUresult result = expose_operands(target.session, {address}); result != CUDA_SUCCESS)
    return result;
  return send(target.session, target.context);
}

CUresult expose_operation(Session& session, const CUstreamBatchMemOpParams& operation) {
  switch (operation.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return expose_operands(session, {operation.waitValue.address});
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return expose_operands(session, {operation.writeValue.address});
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return expose_operands(session, {operation.writeValue.address, operation.writeValue.value64});
    default:
      return CUDA_SUCCESS;
  }
}

// Before a wait for the word at `address` is sent.
void note_wait(Session& session, CUdeviceptr address, size_t bytes) {
  session.memory_waits.fetch_add(1, std::memory_order_release);
  session.pages.watch(address, bytes);
}

// After it was sent.
CUresult noted(Session& session, CUstream stream, CUdeviceptr address, CUresult sent) {
  if (sent == CUDA_SUCCESS && session.pages.touches(address, sizeof(uint32_t)))
    session.value_waits.add(StreamMark(session, stream).queue());
  return sent;
}

}  // namespace

CUresult manual_cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                        unsigned int flags) {
  return with_operand(stream, addr, [&](Session& session, uint16_t context) {
    return call_cuStreamWriteValue32_v2(session, context, stream, addr, value, flags);
  });
}

CUresult manual_cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                       unsigned int flags) {
  return with_operand(stream, addr, [&](Session& session, uint16_t context) {
    note_wait(session, addr, sizeof value);
    return noted(session, stream, addr,
                 call_cuStreamWaitValue32_v2(session, context, stream, addr, value, flags));
  });
}

CUresult manual_cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                        unsigned int flags) {
  // The value may be a pointer that a kernel follows.
  const CallTarget target = CallTarget::of(stream);
  if (const CUresult result = expose_operands(target.session, {value}); result != CUDA_SUCCESS)
    return result;
  return with_operand(stream, addr, [&](Session& session, uint16_t context) {
    return call_cuStreamWriteValue64_v2(session, context, stream, addr, value, flags);
  });
}

CUresult manual_cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                       unsigned int flags) {
  return with_operand(stream, addr, [&](Session& session, uint16_t context) {
    note_wait(session, addr, sizeof value);
    return noted(session, stream, addr,
                 call_cuStreamWaitValue64_v2(session, context, stream, addr, value, flags));
  });
}

CUresult manual_cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                                      CUstreamBatchMemOpParams* paramArray, unsigned int flags) {
  const CallTarget target = CallTarget::of(stream);
  // A copy, since managed memory must not be read while a message is built.
  std::vector<CUstreamBatchMemOpParams> operations;
  if (paramArray != nullptr) {
    operations.assign(paramArray, paramArray + count);
    for (const CUstreamBatchMemOpParams& operation : operations) {
      if (const CUresult result = expose_operation(target.session, operation);
          result != CUDA_SUCCESS) {
        return result;
      }
      if (is_wait(operation)) {
        const bool is_long = operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
        note_wait(target.session, operation.waitValue.address,
                  is_long ? sizeof(uint64_t) : sizeof(uint32_t));
      }
    }
  }
  const CUresult sent =
      call_cuStreamBatchMemOp_v2(target.session, target.context, stream, count,
                                 paramArray == nullptr ? nullptr : operations.data(), flags);
  for (const CUstreamBatchMemOpParams& operation : operations) {
    if (is_wait(operation)) (void)noted(target.session, stream, operation.waitValue.address, sent);
  }
  return sent;
}

}  // namespace fargpu::client

// Waiting for and writing values in memory in stream order: the memory may be the application's
// own, which is exposed then. From the first wait on, synchronous copies from pinned memory wait
// (client/transfer/synchronous_copy.h): that is noted before the wait is sent.
#include <vector>

#include "client/manual/common.h"
#include "client/transfer/endpoint.h"
#include "client/transfer/exposure.h"
#include "schema/support/cuda_rules.h"

namespace fargpu::client {
namespace {

using schema::is_wait;

CUresult check_operand(Session& session, CUdeviceptr address, size_t bytes) {
  return check_range(session, device_end(session, {address}), bytes);
}

// `send(session, context)` after the operand's memory was exposed.
template <typename Send>
CUresult with_operand(CUstream stream, CUdeviceptr address, size_t bytes, Send&& send) {
  const CallTarget target = CallTarget::of(stream);
  CUresult result = check_operand(target.session, address, bytes);
  if (result == CUDA_SUCCESS) result = expose_operands(target.session, {address});
  if (result != CUDA_SUCCESS) return result;
  const AskDriver asked(is_unknown(target.session, address));
  return send(target.session, target.context);
}

// The operand of an operation and its size; {0, 0}: it has none.
struct Operand {
  CUdeviceptr address = 0;
  size_t bytes = 0;
};
Operand operand_of(const CUstreamBatchMemOpParams& operation) {
  switch (operation.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      return {operation.waitValue.address, sizeof(cuuint32_t)};
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return {operation.waitValue.address, sizeof(cuuint64_t)};
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return {operation.writeValue.address, sizeof(cuuint32_t)};
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return {operation.writeValue.address, sizeof(cuuint64_t)};
    default:
      return {};
  }
}

// Whether the operation is right as far as can be told here. Of any other one the driver is asked.
bool is_plain(const Session& session, const CUstreamBatchMemOpParams& operation) {
  const Operand operand = operand_of(operation);
  const unsigned flags =
      is_wait(operation) ? operation.waitValue.flags : operation.writeValue.flags;
  const bool has_plain_flags = is_wait(operation) ? flags <= CU_STREAM_WAIT_VALUE_NOR : flags == 0;
  return operand.bytes != 0 && operand.address % operand.bytes == 0 && has_plain_flags &&
         !is_unknown(session, operand.address);
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
  session.observers.add(Observers::kValueWaits);
  session.pages.watch(address, bytes);
}

// After it was sent.
CUresult noted(Session& session, CUstream stream, CUdeviceptr address, CUresult sent) {
  if (sent == CUDA_SUCCESS && session.pages.touches(address, sizeof(uint32_t)))
    watch_values(session, stream);
  return sent;
}

}  // namespace

CUresult manual_cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                        unsigned int flags) {
  return with_operand(stream, addr, sizeof value, [&](Session& session, uint16_t context) {
    return call_cuStreamWriteValue32_v2(session, context, stream, addr, value, flags);
  });
}

CUresult manual_cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                       unsigned int flags) {
  return with_operand(stream, addr, sizeof value, [&](Session& session, uint16_t context) {
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
  return with_operand(stream, addr, sizeof value, [&](Session& session, uint16_t context) {
    return call_cuStreamWriteValue64_v2(session, context, stream, addr, value, flags);
  });
}

CUresult manual_cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                       unsigned int flags) {
  return with_operand(stream, addr, sizeof value, [&](Session& session, uint16_t context) {
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
  bool are_plain = true;
  if (paramArray != nullptr) {
    operations.assign(paramArray, paramArray + count);
    for (const CUstreamBatchMemOpParams& operation : operations) {
      if (const auto [address, bytes] = operand_of(operation); bytes != 0) {
        const CUresult result = check_operand(target.session, address, bytes);
        if (result != CUDA_SUCCESS) return result;
      }
      are_plain &= is_plain(target.session, operation);
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
  const AskDriver asked(!are_plain);
  const CUresult sent =
      call_cuStreamBatchMemOp_v2(target.session, target.context, stream, count,
                                 paramArray == nullptr ? nullptr : operations.data(), flags);
  for (const CUstreamBatchMemOpParams& operation : operations) {
    if (is_wait(operation)) (void)noted(target.session, stream, operation.waitValue.address, sent);
  }
  return sent;
}

}  // namespace fargpu::client

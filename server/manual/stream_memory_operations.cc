// Waits for values in memory: while one may hold a stream, copies get no fence (copy_fences.h).
#include <cstring>

#include "generated/schema/stream_memory_operations.capnp.h"
#include "schema/support/small_buffer.h"
#include "server/manual/manual.h"
#include "server/stream/copy_fences.h"

namespace fargpu::server {
namespace {

bool is_wait(const CUstreamBatchMemOpParams& operation) {
  return operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
         operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
}

// A wait is in the stream now.
void hold_until_passed(Worker& worker, uint16_t context, CUstream stream) {
  worker.parts().completion.keep(UntilPassed{context, stream}, worker.parts().copy_fences.hold());
}

template <typename Params, typename Wait>
Status wait_for_value(Worker& worker, const Request& request, const char* name, Wait wait) {
  return decoded(name, [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<Params>();
    if (wait == nullptr) return answer(worker, request, CUDA_ERROR_NOT_SUPPORTED);
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.enter_context(request.header.context));
    CUstream stream = nullptr;
    FARGPU_ANSWER_UNLESS_SUCCESS(
        find_handle(worker, rpc::HandleKind::kStream, params.getStream(), &stream));
    const CUresult result = wait(stream, params.getAddr(), params.getValue(), params.getFlags());
    if (result == CUDA_SUCCESS) hold_until_passed(worker, request.header.context, stream);
    return answer(worker, request, result);
  });
}

}  // namespace

Status manual_cuStreamWaitValue32_v2(Worker& worker, const Request& request) {
  return wait_for_value<schema::CuStreamWaitValue32V2Params>(
      worker, request, "cuStreamWaitValue32_v2", worker.driver().cuStreamWaitValue32_v2);
}

Status manual_cuStreamWaitValue64_v2(Worker& worker, const Request& request) {
  return wait_for_value<schema::CuStreamWaitValue64V2Params>(
      worker, request, "cuStreamWaitValue64_v2", worker.driver().cuStreamWaitValue64_v2);
}

Status manual_cuStreamBatchMemOp_v2(Worker& worker, const Request& request) {
  return decoded("cuStreamBatchMemOp_v2", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::CuStreamBatchMemOpV2Params>();
    const auto data = params.getParamArray();
    const uint64_t count = params.getCount();
    using Operation = CUstreamBatchMemOpParams;
    if (!schema::fits(count, sizeof(Operation)) || data.size() != count * sizeof(Operation))
      return malformed("cuStreamBatchMemOp_v2", "paramArray has the wrong size");
    FARGPU_NEEDS_DRIVER(cuStreamBatchMemOp_v2);
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.enter_context(request.header.context));
    CUstream stream = nullptr;
    FARGPU_ANSWER_UNLESS_SUCCESS(
        find_handle(worker, rpc::HandleKind::kStream, params.getStream(), &stream));
    schema::SmallBuffer<Operation> operations(count);
    if (count > 0) std::memcpy(operations.data(), data.begin(), data.size());
    bool waits = false;
    for (const Operation& operation : operations) waits |= is_wait(operation);
    const CUresult result = worker.driver().cuStreamBatchMemOp_v2(
        stream, params.getCount(), operations.data(), params.getFlags());
    if (result == CUDA_SUCCESS && waits) hold_until_passed(worker, request.header.context, stream);
    return answer(worker, request, result);
  });
}

}  // namespace fargpu::server

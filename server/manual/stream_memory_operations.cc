// Waits for values in memory: while one may hold a stream, copies get no fence (copy_fences.h).
#include <algorithm>

#include "generated/server/stream_memory_operations_decode.h"
#include "schema/support/cuda_rules.h"
#include "server/manual/manual.h"
#include "server/stream/copy_fences.h"

namespace fargpu::server {
namespace {

using schema::is_wait;

// A wait is in the stream now.
void hold_until_passed(SessionParts& parts, const FrameStream& stream) {
  if (parts.contexts.enter(stream.context) == CUDA_SUCCESS)
    parts.completion.keep(UntilPassed{stream.context, stream.handle}, parts.copy_fences.hold());
}

// The driver's answer to the call that puts one into the stream.
template <typename Arguments>
Status waits(Worker& worker, const Request& request, const Arguments& given, CUresult result) {
  if (result == CUDA_SUCCESS) hold_until_passed(worker.parts(), given.submission.stream());
  return answer(worker, request, result);
}

}  // namespace

Status manual_cuStreamWaitValue32_v2(Worker& worker, const Request& request) {
  return decode_cuStreamWaitValue32_v2(worker, request, [&](const auto& given) {
    return waits(
        worker, request, given,
        worker.driver().cuStreamWaitValue32_v2(given.stream, given.addr, given.value, given.flags));
  });
}

Status manual_cuStreamWaitValue64_v2(Worker& worker, const Request& request) {
  return decode_cuStreamWaitValue64_v2(worker, request, [&](const auto& given) {
    return waits(
        worker, request, given,
        worker.driver().cuStreamWaitValue64_v2(given.stream, given.addr, given.value, given.flags));
  });
}

Status manual_cuStreamBatchMemOp_v2(Worker& worker, const Request& request) {
  return decode_cuStreamBatchMemOp_v2(worker, request, [&](const auto& given) {
    const CUresult result = worker.driver().cuStreamBatchMemOp_v2(
        given.stream, given.count, given.paramArray.data(), given.flags);
    return std::any_of(given.paramArray.begin(), given.paramArray.end(), is_wait)
               ? waits(worker, request, given, result)
               : answer(worker, request, result);
  });
}

}  // namespace fargpu::server

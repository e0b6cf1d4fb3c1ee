// Waits for values in memory: from the first one on, synchronous copies from pinned memory wait
// (client/memory/synchronous_copy.h). Noted before it is sent.
#include <algorithm>

#include "client/manual/common.h"

namespace fargpu::client {

CUresult manual_cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                       unsigned int flags) {
  const Here here;
  here.session.memory_waits.fetch_add(1, std::memory_order_release);
  return call_cuStreamWaitValue32_v2(here.session, here.context, stream, addr, value, flags);
}

CUresult manual_cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                       unsigned int flags) {
  const Here here;
  here.session.memory_waits.fetch_add(1, std::memory_order_release);
  return call_cuStreamWaitValue64_v2(here.session, here.context, stream, addr, value, flags);
}

CUresult manual_cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                                      CUstreamBatchMemOpParams* paramArray, unsigned int flags) {
  const Here here;
  const auto is_wait = [](const CUstreamBatchMemOpParams& operation) {
    return operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
           operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
  };
  if (paramArray != nullptr && std::any_of(paramArray, paramArray + count, is_wait))
    here.session.memory_waits.fetch_add(1, std::memory_order_release);
  return call_cuStreamBatchMemOp_v2(here.session, here.context, stream, count, paramArray, flags);
}

}  // namespace fargpu::client

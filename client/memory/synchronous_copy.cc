#include "client/memory/synchronous_copy.h"

#include "client/manual/common.h"
#include "common/rpc/copy_order.h"

namespace fargpu::client {

using rpc::CopyOrder;

SynchronousCopy::SynchronousCopy(Session& session, bool wait, uint64_t source)
    : session_(session), kind_(wait ? Kind::kFromPageable : Kind::kAsynchronous) {
  if (!wait || session.host_memory.empty() || !session.host_memory.find(source)) return;
  kind_ = Kind::kFromPinned;
  host_call_period_ = session.host_calls.period();
  memory_waits_ = session.memory_waits.load(std::memory_order_acquire);
  awaited_ = can_be_told();
}

bool SynchronousCopy::can_be_told() const {
  return session_.host_calls.outstanding() || session_.ordered_copies.outstanding() ||
         session_.memory_waits.load(std::memory_order_acquire) != 0 || session_.shared_host.any() ||
         session_.pages.any();
}

int SynchronousCopy::order(bool last) const {
  if (!last) return static_cast<int>(CopyOrder::kStream);
  if (kind_ == Kind::kFromPageable) return static_cast<int>(CopyOrder::kLaterWork);
  // Without a fence where the application may have to submit something for the copy to end.
  if (kind_ == Kind::kFromPinned && !awaited_) return static_cast<int>(CopyOrder::kReturned);
  return static_cast<int>(CopyOrder::kStream);
}

CUresult SynchronousCopy::finish(CUstream stream) {
  if (kind_ != Kind::kFromPinned) return CUDA_SUCCESS;
  if (!awaited_ && !can_be_told() && host_call_period_ == session_.host_calls.period() &&
      memory_waits_ == session_.memory_waits.load(std::memory_order_acquire))
    return CUDA_SUCCESS;
  const CUresult result = call_cuStreamSynchronize(session_, current_context_id(), stream);
  return result == CUDA_SUCCESS ? after_synchronisation(session_, /*all_done=*/false) : result;
}

}  // namespace fargpu::client

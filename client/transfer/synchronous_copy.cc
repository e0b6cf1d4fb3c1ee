#include "client/transfer/synchronous_copy.h"

#include "client/entry/here.h"
#include "client/transfer/coherence.h"
#include "common/rpc/copy_order.h"

namespace fargpu::client {

using rpc::CopyOrder;

SynchronousCopy::SynchronousCopy(Session& session, bool wait, uint64_t source, uint64_t bytes,
                                 CUstream stream)
    : session_(session), stream_(stream), kind_(Kind::kAsynchronous) {
  if (!wait) return;
  if (!session.host_memory.empty() && session.find_host(source)) {
    kind_ = Kind::kFromPinned;
  } else {
    kind_ = bytes <= kSmallBytes ? Kind::kSmallFromPageable : Kind::kFromPageable;
    if (kind_ == Kind::kSmallFromPageable) return;
  }
  host_call_period_ = session.host_calls.period();
  memory_waits_ = session.memory_waits.load(std::memory_order_acquire);
  awaited_ = can_be_told();
  if (awaited_ && kind_ == Kind::kFromPageable) before_.emplace(session, stream);
}

bool SynchronousCopy::can_be_told() const {
  return session_.host_calls.outstanding() || session_.ordered_copies.outstanding() ||
         session_.memory_waits.load(std::memory_order_acquire) != 0 || session_.shared_host.any() ||
         session_.pages.any();
}

int SynchronousCopy::order(bool last) const {
  if (!last || kind_ == Kind::kAsynchronous) return static_cast<int>(CopyOrder::kStream);
  if (kind_ == Kind::kSmallFromPageable) return static_cast<int>(CopyOrder::kLaterWork);
  if (!awaited_) return static_cast<int>(CopyOrder::kReturned);
  // The call waits for all of a copy from pinned memory.
  return static_cast<int>(kind_ == Kind::kFromPinned ? CopyOrder::kStream : CopyOrder::kLaterWork);
}

CUresult SynchronousCopy::finish() {
  if (kind_ == Kind::kAsynchronous || kind_ == Kind::kSmallFromPageable) return CUDA_SUCCESS;
  if (!awaited_ && !can_be_told() && host_call_period_ == session_.host_calls.period() &&
      memory_waits_ == session_.memory_waits.load(std::memory_order_acquire))
    return CUDA_SUCCESS;
  if (!before_) return call_cuStreamSynchronize(session_, current_context_id(), stream_);
  const CUresult result = before_->wait();
  return result == CUDA_SUCCESS ? after_synchronisation(session_) : result;
}

}  // namespace fargpu::client

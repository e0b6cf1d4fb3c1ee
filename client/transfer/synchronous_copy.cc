#include "client/transfer/synchronous_copy.h"

#include "client/entry/call_target.h"
#include "client/managed/managed_memory.h"
#include "client/transfer/routes.h"
#include "common/copy/limits.h"

namespace fargpu::client {

SynchronousCopy::SynchronousCopy(const Transfer& transfer)
    : session_(transfer.session),
      context_(transfer.context),
      stream_(transfer.stream),
      bytes_(transfer.bytes),
      kind_(Kind::kAsynchronous) {
  if (!transfer.wait) return;
  if (ManagedMemory::is_own_work()) [[unlikely]] {
    kind_ = Kind::kOwnWork;
    return;
  }
  if (transfer.host.region) {
    kind_ = Kind::kFromPinned;
  } else {
    kind_ = bytes_ <= copy::kTakenInCall ? Kind::kSmallFromPageable : Kind::kFromPageable;
    // Another process may be told that the call has returned, and look.
    if (session_.observers.any(Observers::kOtherProcesses)) kind_ = Kind::kFromPinned;
    if (kind_ == Kind::kSmallFromPageable) return;
  }
  host_call_period_ = session_.host_calls.period();
  awaited_ = can_be_told();
  if (awaited_ && kind_ == Kind::kFromPageable) before_.emplace(session_, stream_);
}

bool SynchronousCopy::can_be_told() const {
  return session_.observers.any(Observers::kHeldStreams | Observers::kCopies |
                                Observers::kValueWaits | Observers::kSharedMemory |
                                Observers::kMirrors | Observers::kOtherProcesses);
}

copy::Order SynchronousCopy::order(const copy::Piece& piece) const {
  using copy::Order;
  const bool last = piece.offset + piece.bytes == bytes_;
  if (!last || kind_ == Kind::kAsynchronous) return Order::kStream;
  if (kind_ == Kind::kSmallFromPageable) return Order::kLaterWork;
  if (kind_ == Kind::kOwnWork) return Order::kOwnStream;
  if (!awaited_) return Order::kReturned;
  // The call waits for all of a copy from pinned memory.
  return kind_ == Kind::kFromPinned ? Order::kStream : Order::kLaterWork;
}

CUresult SynchronousCopy::finish() {
  if (kind_ == Kind::kAsynchronous || kind_ == Kind::kSmallFromPageable || kind_ == Kind::kOwnWork)
    return CUDA_SUCCESS;
  if (!awaited_ && !can_be_told() && host_call_period_ == session_.host_calls.period())
    return CUDA_SUCCESS;
  if (!before_) return call_cuStreamSynchronize(session_, context_, stream_);
  const CUresult result = before_->wait();
  return result == CUDA_SUCCESS ? after_synchronisation(session_) : result;
}

}  // namespace fargpu::client

// Copies of pinned memory over rdma: the worker's adapter fetches and delivers the bytes itself.
#include "client/entry/call_target.h"
#include "client/transfer/routes.h"
#include "common/copy/limits.h"

namespace fargpu::client {

bool find_registered(Transfer& transfer) {
  if (!transfer.means.adapter || transfer.bytes <= copy::kTakenInCall) return false;
  transfer.registered =
      transfer.session.remote_host.find(*transfer.host.region, transfer.host.rows.address);
  return transfer.registered.has_value();
}

namespace {

CUresult to_device(const Transfer& transfer) {
  Session& session = transfer.session;
  const CUresult result =
      for_each_piece(transfer.shape, copy::kMostRemote, [&](const copy::Piece& piece) {
        // In stream order; the worker may read the bytes until the stream has passed the copy.
        return send_copy(transfer, transfer.piece(piece, transfer.registered->at(piece.offset)));
      });
  session.remote_host.sent(*transfer.registered);
  return result;
}

}  // namespace

CUresult carry_by_adapter(Transfer& transfer) {
  Session& session = transfer.session;
  CUresult result = CUDA_SUCCESS;
  if (transfer.to_device) {
    result = await_source(transfer);
    if (result == CUDA_SUCCESS) result = to_device(transfer);
    // A synchronous copy has taken its bytes, and the worker takes them in stream order.
    if (result != CUDA_SUCCESS || !transfer.passed()) return result;
    return call_cuStreamSynchronize(session, transfer.context, transfer.stream);
  }
  result = for_each_piece(transfer.shape, copy::kMostRemote, [&](const copy::Piece& piece) {
    return send_copy_and_wait(transfer, transfer.piece(piece, transfer.registered->at(piece.offset),
                                                       {transfer.plan.completion}));
  });
  return result == CUDA_SUCCESS ? after_synchronisation(session) : result;
}

}  // namespace fargpu::client

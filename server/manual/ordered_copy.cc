// Copies that follow their stream or may be amended: checked here, done by OrderedCopies.
#include "generated/server/internal_decode.h"
#include "server/copy/ordered_copies.h"
#include "server/copy/remote_staging.h"
#include "server/manual/copies.h"

namespace fargpu::server {
namespace {

OrderedCopies& copies_of(Worker& worker) { return worker.parts().ordered_copies; }

const char* judge(const CopyCall& call) {
  if (call.bytes() > copy::kMostFollowing) return "too many bytes for one call";
  if (!call.copy.to_device() && call.copy.completion.hold == copy::Hold::kNever &&
      call.bytes() > copy::kMostUnheld)
    return "a copy of this size holds its stream";
  return copies_of(call.worker).knows(call.copy.completion.number) ? "the id is in use" : nullptr;
}

CUresult check_target(const CopyCall& call) {
  const copy::Location& to = call.copy.to;
  if (to.kind != copy::Location::Kind::kRemote) return CUDA_SUCCESS;
  if (call.worker.parts().remote_staging.remote() == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  return to.holds(call.bytes()) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// `make` puts what it says into the stream, unless that is not possible.
template <typename Make>
Status order(Worker& worker, const Request& request, const OrderedCopies::Order& order,
             CUresult possible, Make&& make) {
  if (possible == CUDA_SUCCESS) {
    possible = make(order);
  } else {
    copies_of(worker).refuse(order, possible);
  }
  return answer(worker, request, possible);
}

OrderedCopies::Order order_of(const CopyCall& call) {
  return {call.copy.completion.number, call.context(), call.stream_id, call.stream.handle,
          call.copy};
}

}  // namespace

Status deliver(CopyCall& call) {
  if (const char* const wrong = judge(call)) return malformed(call.name(), wrong);
  CUresult possible = call.enter();
  if (possible == CUDA_SUCCESS) possible = check_target(call);
  return order(call.worker, call.request, order_of(call), possible,
               [&](const auto& made) { return copies_of(call.worker).deliver(made); });
}

Status fetch(CopyCall& call) {
  if (const char* const wrong = judge(call)) return malformed(call.name(), wrong);
  const CUresult possible = call.enter();
  return order(call.worker, call.request, order_of(call), possible,
               [&](const auto& made) { return copies_of(call.worker).fetch(made); });
}

Status amended(CopyCall& call) {
  OrderedCopies& copies = copies_of(call.worker);
  if (call.bytes() > copy::kMostAmended)
    return malformed(call.name(), "too many bytes to be amended");
  if (call.copy.order != copy::Order::kStream)
    return malformed(call.name(), "a copy that is amended has its stream's order");
  if (copies.amends(call.copy.completion.number)) return malformed(call.name(), "the id is in use");
  CUresult result = call.enter();
  if (result == CUDA_SUCCESS)
    result = copies.amended(order_of(call), call.request.bulk);
  else
    copies.end_amended(call.copy.completion.number);
  return answer(call.worker, call.request, result);
}

Status manual_fgAmend(Worker& worker, const Request& request) {
  return decode_fgAmend(worker, request, [&](const auto& given) -> Status {
    FARGPU_RETURN_IF_ERROR(copies_of(worker).amend(given.id, given.data));
    return answer(worker, request, CUDA_SUCCESS);
  });
}

Status manual_fgMeetDeliveries(Worker& worker, const Request& request) {
  return decoded("fgMeetDeliveries", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::FgMeetDeliveriesParams>();
    if (copies_of(worker).knows(params.getId()))
      return malformed("fgMeetDeliveries", "the id is in use");
    CopyCall call{worker, request, {}, params.getStream()};
    const CUresult possible = call.enter();
    OrderedCopies::Order barrier = order_of(call);
    barrier.id = params.getId();
    return order(worker, request, barrier, possible,
                 [&](const auto& made) { return copies_of(worker).barrier(made); });
  });
}

Status manual_fgDelivered(Worker& worker, const Request& request) {
  return decode_fgDelivered(worker, request, [&](const auto& given) -> Status {
    FARGPU_RETURN_IF_ERROR(copies_of(worker).delivered(given.id));
    return answer(worker, request, CUDA_SUCCESS);
  });
}

Status manual_fgFetched(Worker& worker, const Request& request) {
  return decode_fgFetched(worker, request, [&](const auto& given) -> Status {
    FARGPU_RETURN_IF_ERROR(copies_of(worker).fetched(given.id, given.offset, given.bytes));
    return answer(worker, request, CUDA_SUCCESS);
  });
}

}  // namespace fargpu::server

// Asynchronous copies of the client's pinned and registered memory: checked here, done by
// OrderedCopies.
#include "generated/schema/internal.capnp.h"
#include "server/manual/manual.h"
#include "server/memory/copy_shape.h"
#include "server/memory/ordered_copies.h"
#include "server/memory/remote_staging.h"

namespace fargpu::server {
namespace {

// The copy's bytes; 0 when it is empty or not fit for one call.
template <typename Params>
uint64_t read_shape(const Params& params, Shape* shape) {
  *shape = {params.getPitch(), params.getSlicePitch(), params.getWidthBytes(), params.getHeight(),
            params.getDepth()};
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(shape->width, shape->height, &bytes) ||
      __builtin_mul_overflow(bytes, shape->depth, &bytes))
    return 0;
  return bytes <= OrderedCopies::kMostBytes && is_consistent(*shape, bytes) ? bytes : 0;
}

// Enters the context and finds the stream.
template <typename Params>
CUresult prepare(Worker& worker, const Request& request, const Params& params,
                 OrderedCopies::Order* order) {
  order->id = params.getId();
  order->context = request.header.context;
  order->stream_id = params.getStream();
  if (const CUresult result = worker.enter_context(order->context); result != CUDA_SUCCESS)
    return result;
  return find_handle(worker, rpc::HandleKind::kStream, order->stream_id, &order->stream);
}

CUresult read_target(Worker& worker, schema::FgDeliverParams::Reader params,
                     OrderedCopies::Order* order) {
  if (params.getRemoteBytes() == 0) return CUDA_SUCCESS;
  if (worker.parts().remote_staging.remote() == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const DeliveryTarget target{
      {params.getRemoteAddress(), params.getRemoteBytes(), params.getRemoteKey()},
      params.getOffset()};
  if (target.offset > target.client.bytes || order->bytes > target.client.bytes - target.offset)
    return CUDA_ERROR_INVALID_VALUE;
  order->target = target;
  return CUDA_SUCCESS;
}

}  // namespace

Status manual_fgDeliver(Worker& worker, const Request& request) {
  return decoded("fgDeliver", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::FgDeliverParams>();
    OrderedCopies::Order order;
    order.bytes = read_shape(params, &order.shape);
    if (order.bytes == 0) return malformed("fgDeliver", "a shape that is not possible");
    const int hold = params.getHold();
    if (hold < 0 || hold > 2) return malformed("fgDeliver", "hold is 0, 1 or 2");
    if (hold == 0 && order.bytes > OrderedCopies::kMostUngatedBytes)
      return malformed("fgDeliver", "a copy of this size holds its stream");
    OrderedCopies& copies = worker.parts().ordered_copies;
    if (copies.knows(params.getId())) return malformed("fgDeliver", "the id is in use");
    order.device = params.getSrc();
    CUresult result = prepare(worker, request, params, &order);
    if (result == CUDA_SUCCESS) result = read_target(worker, params, &order);
    if (result == CUDA_SUCCESS) {
      result = copies.deliver(order, static_cast<OrderedCopies::Hold>(hold));
    } else {
      copies.refuse(order.id, false, order.bytes, result);
    }
    return answer(worker, request, result);
  });
}

Status manual_fgDelivered(Worker& worker, const Request& request) {
  return decoded("fgDelivered", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const uint64_t id = reader.getRoot<schema::FgDeliveredParams>().getId();
    FARGPU_RETURN_IF_ERROR(worker.parts().ordered_copies.delivered(id));
    return answer(worker, request, CUDA_SUCCESS);
  });
}

Status manual_fgFetch(Worker& worker, const Request& request) {
  return decoded("fgFetch", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::FgFetchParams>();
    OrderedCopies::Order order;
    order.bytes = read_shape(params, &order.shape);
    if (order.bytes == 0) return malformed("fgFetch", "a shape that is not possible");
    OrderedCopies& copies = worker.parts().ordered_copies;
    if (copies.knows(params.getId())) return malformed("fgFetch", "the id is in use");
    order.device = params.getDst();
    CUresult result = prepare(worker, request, params, &order);
    if (result == CUDA_SUCCESS) {
      result = copies.fetch(order);
    } else {
      copies.refuse(order.id, true, order.bytes, result);
    }
    return answer(worker, request, result);
  });
}

Status manual_fgMeetDeliveries(Worker& worker, const Request& request) {
  return decoded("fgMeetDeliveries", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::FgMeetDeliveriesParams>();
    OrderedCopies& copies = worker.parts().ordered_copies;
    if (copies.knows(params.getId())) return malformed("fgMeetDeliveries", "the id is in use");
    OrderedCopies::Order order;
    CUresult result = prepare(worker, request, params, &order);
    if (result == CUDA_SUCCESS) {
      result = copies.meet(order);
    } else {
      copies.refuse(order.id, false, 0, result);
    }
    return answer(worker, request, result);
  });
}

Status manual_fgFetched(Worker& worker, const Request& request) {
  return decoded("fgFetched", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::FgFetchedParams>();
    if (params.getBytes() != request.bulk.size())
      return malformed("fgFetched", "data has the wrong size");
    FARGPU_RETURN_IF_ERROR(worker.parts().ordered_copies.fetched(params.getId(), params.getOffset(),
                                                                 params.getBytes()));
    return answer(worker, request, CUDA_SUCCESS);
  });
}

}  // namespace fargpu::server

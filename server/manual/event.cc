// Events: waiting is polling between frames, for what was recorded when the wait began.
#include "generated/schema/context.capnp.h"
#include "generated/schema/event.capnp.h"
#include "server/manual/manual.h"
#include "server/manual/query.h"
#include "server/stream/event_waits.h"

namespace fargpu::server {
namespace {

// The event and the stream of a record, in the context of the request.
template <typename Params>
CUresult find_both(Worker& worker, const Request& request, const Params& params, CUevent* event,
                   CUstream* stream) {
  CUresult result = worker.enter_context(request.header.context);
  if (result == CUDA_SUCCESS)
    result = find_handle(worker, rpc::HandleKind::kEvent, params.getHEvent(), event);
  if (result == CUDA_SUCCESS)
    result = find_handle(worker, rpc::HandleKind::kStream, params.getHStream(), stream);
  return result;
}

}  // namespace

Status manual_cuEventQuery(Worker& worker, const Request& request) {
  return decoded("cuEventQuery", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::CuEventQueryParams>();
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.enter_context(request.header.context));
    const auto ask = [&worker, id = params.getHEvent()] {
      CUevent event = nullptr;
      const CUresult found = find_handle(worker, rpc::HandleKind::kEvent, id, &event);
      return found == CUDA_SUCCESS ? worker.driver().cuEventQuery(event) : found;
    };
    return answer_query(worker, request, ask,
                        [&worker](const wire::FrameHeader& header, CUresult result) {
                          return worker.responder().reply(header, result);
                        });
  });
}

Status manual_cuEventElapsedTime_v2(Worker& worker, const Request& request) {
  return decoded("cuEventElapsedTime_v2", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::CuEventElapsedTimeV2Params>();
    FARGPU_NEEDS_DRIVER(cuEventElapsedTime_v2);
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.enter_context(request.header.context));
    const auto elapsed = [&worker, start = params.getHStart(), end = params.getHEnd()](float* ms) {
      CUevent first = nullptr, last = nullptr;
      CUresult found = find_handle(worker, rpc::HandleKind::kEvent, start, &first);
      if (found == CUDA_SUCCESS) found = find_handle(worker, rpc::HandleKind::kEvent, end, &last);
      return found == CUDA_SUCCESS ? worker.driver().cuEventElapsedTime_v2(ms, first, last) : found;
    };
    const auto ask = [elapsed] {
      float milliseconds = 0;
      return elapsed(&milliseconds);
    };
    return answer_query(
        worker, request, ask, [&worker, elapsed](const wire::FrameHeader& header, CUresult result) {
          float milliseconds = 0;
          if (result == CUDA_SUCCESS) result = elapsed(&milliseconds);
          if (result != CUDA_SUCCESS) return worker.responder().reply(header, result);
          rpc::Responder::Frame frame(worker.responder(), header,
                                      schema::fixed_bytes<schema::CuEventElapsedTimeV2Results>());
          frame.init<schema::CuEventElapsedTimeV2Results>().setPMilliseconds(milliseconds);
          return frame.send(CUDA_SUCCESS);
        });
  });
}

Status manual_cuEventSynchronize(Worker& worker, const Request& request) {
  return decoded("cuEventSynchronize", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const uint64_t id = reader.getRoot<schema::CuEventSynchronizeParams>().getHEvent();
    CUevent event = nullptr;
    FARGPU_ANSWER_UNLESS_SUCCESS(find_handle(worker, rpc::HandleKind::kEvent, id, &event));
    const LaterReply later(worker, request);
    worker.parts().event_waits.wait(id, event,
                                    [later](CUresult result) { later.send_synchronised(result); });
    return Status();
  });
}

Status manual_cuEventRecord(Worker& worker, const Request& request) {
  return decoded("cuEventRecord", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::CuEventRecordParams>();
    CUevent event = nullptr;
    CUstream stream = nullptr;
    FARGPU_ANSWER_UNLESS_SUCCESS(find_both(worker, request, params, &event, &stream));
    return answer(worker, request,
                  worker.parts().event_waits.record(
                      params.getHEvent(), event, [&worker, stream](CUevent used) {
                        return worker.driver().cuEventRecord(used, stream);
                      }));
  });
}

Status manual_cuEventRecordWithFlags(Worker& worker, const Request& request) {
  return decoded("cuEventRecordWithFlags", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::CuEventRecordWithFlagsParams>();
    FARGPU_NEEDS_DRIVER(cuEventRecordWithFlags);
    CUevent event = nullptr;
    CUstream stream = nullptr;
    FARGPU_ANSWER_UNLESS_SUCCESS(find_both(worker, request, params, &event, &stream));
    return answer(
        worker, request,
        worker.parts().event_waits.record(
            params.getHEvent(), event, [&worker, stream, flags = params.getFlags()](CUevent used) {
              return worker.driver().cuEventRecordWithFlags(used, stream, flags);
            }));
  });
}

Status manual_cuCtxRecordEvent(Worker& worker, const Request& request) {
  return decoded("cuCtxRecordEvent", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::CuCtxRecordEventParams>();
    FARGPU_NEEDS_DRIVER(cuCtxRecordEvent);
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.enter_context(request.header.context));
    CUcontext context = nullptr;
    FARGPU_ANSWER_UNLESS_SUCCESS(
        find_handle(worker, rpc::HandleKind::kContext, params.getHCtx(), &context));
    CUevent event = nullptr;
    FARGPU_ANSWER_UNLESS_SUCCESS(
        find_handle(worker, rpc::HandleKind::kEvent, params.getHEvent(), &event));
    return answer(worker, request,
                  worker.parts().event_waits.record(
                      params.getHEvent(), event, [&worker, context](CUevent used) {
                        return worker.driver().cuCtxRecordEvent(context, used);
                      }));
  });
}

Status manual_cuEventDestroy_v2(Worker& worker, const Request& request) {
  return decoded("cuEventDestroy_v2", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const uint64_t id = reader.getRoot<schema::CuEventDestroyV2Params>().getHEvent();
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.enter_context(request.header.context));
    CUevent event = nullptr;
    FARGPU_ANSWER_UNLESS_SUCCESS(find_handle(worker, rpc::HandleKind::kEvent, id, &event));
    const CUresult result = worker.parts().event_waits.destroy(id, event);
    if (result == CUDA_SUCCESS) worker.remove(id);
    return answer(worker, request, result);
  });
}

}  // namespace fargpu::server

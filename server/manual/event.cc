// Events: waiting is polling between frames, for what was recorded when the wait began.
#include "generated/server/context_decode.h"
#include "generated/server/event_decode.h"
#include "server/manual/manual.h"
#include "server/manual/query.h"
#include "server/stream/event_waits.h"

namespace fargpu::server {

Status manual_cuEventCreate(Worker& worker, const Request& request) {
  return decode_cuEventCreate(worker, request, [&](const auto& given) -> Status {
    CUevent event = nullptr;
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.driver().cuEventCreate(&event, given.Flags));
    const CUresult added =
        worker.add(rpc::HandleKind::kEvent, given.phEvent_id, event, request.header.context);
    if (added != CUDA_SUCCESS) {
      worker.driver().cuEventDestroy_v2(event);
      return refused_id(worker, request, "cuEventCreate", added);
    }
    if ((given.Flags & CU_EVENT_INTERPROCESS) != 0)
      worker.parts().event_waits.never_replaced(given.phEvent_id);
    return answer(worker, request, CUDA_SUCCESS);
  });
}

Status manual_cuEventQuery(Worker& worker, const Request& request) {
  return decode_cuEventQuery(worker, request, [&](const auto& given) -> Status {
    const auto ask = [&worker, id = given.hEvent_id] {
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
  return decode_cuEventElapsedTime_v2(worker, request, [&](const auto& given) -> Status {
    const auto elapsed = [&worker, start = given.hStart_id, end = given.hEnd_id](float* ms) {
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
  return decode_cuEventSynchronize(worker, request, [&](const auto& given) -> Status {
    const LaterReply later(worker, request);
    worker.parts().event_waits.wait(given.hEvent_id, given.hEvent,
                                    [later](CUresult result) { later.send_synchronised(result); });
    return Status();
  });
}

Status manual_cuEventRecord(Worker& worker, const Request& request) {
  return decode_cuEventRecord(worker, request, [&](const auto& given) {
    const auto record = [&](CUevent used) {
      return worker.driver().cuEventRecord(used, given.hStream);
    };
    return answer(worker, request,
                  worker.parts().event_waits.record(given.hEvent_id, given.hEvent, record));
  });
}

Status manual_cuEventRecordWithFlags(Worker& worker, const Request& request) {
  return decode_cuEventRecordWithFlags(worker, request, [&](const auto& given) {
    const auto record = [&](CUevent used) {
      return worker.driver().cuEventRecordWithFlags(used, given.hStream, given.flags);
    };
    return answer(worker, request,
                  worker.parts().event_waits.record(given.hEvent_id, given.hEvent, record));
  });
}

Status manual_cuCtxRecordEvent(Worker& worker, const Request& request) {
  return decode_cuCtxRecordEvent(worker, request, [&](const auto& given) {
    const auto record = [&](CUevent used) {
      return worker.driver().cuCtxRecordEvent(given.hCtx, used);
    };
    return answer(worker, request,
                  worker.parts().event_waits.record(given.hEvent_id, given.hEvent, record));
  });
}

Status manual_cuEventDestroy_v2(Worker& worker, const Request& request) {
  return decode_cuEventDestroy_v2(worker, request, [&](const auto& given) {
    const CUresult result = worker.parts().event_waits.destroy(given.hEvent_id, given.hEvent);
    if (result == CUDA_SUCCESS) worker.remove(given.hEvent_id);
    return answer(worker, request, result);
  });
}

}  // namespace fargpu::server

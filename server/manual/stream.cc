// Streams: waiting is an event that is polled between frames. While a wait for a value in memory
// may hold a stream, copies get no fence (copy_fences.h).
#include <algorithm>

#include "common/wire/control.h"
#include "generated/schema/control.capnp.h"
#include "generated/schema/internal.capnp.h"
#include "generated/schema/stream.capnp.h"
#include "generated/server/internal_decode.h"
#include "generated/server/stream_memory_operations_decode.h"
#include "schema/support/cuda_rules.h"
#include "schema/support/sizes.h"
#include "server/manual/manual.h"
#include "server/manual/query.h"
#include "server/stream/copy_fences.h"

namespace fargpu::server {

Status manual_cuStreamQuery(Worker& worker, const Request& request) {
  return decoded("cuStreamQuery", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::CuStreamQueryParams>();
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.enter_context(request.header.context));
    const auto ask = [&worker, id = params.getHStream()] {
      CopyFences::Stream stream;
      const CUresult found = worker.parts().core.find_stream(id, &stream);
      return found == CUDA_SUCCESS ? worker.driver().cuStreamQuery(stream.handle) : found;
    };
    return answer_query(worker, request, ask,
                        [&worker](const wire::FrameHeader& header, CUresult result) {
                          if (result != CUDA_ERROR_NOT_READY)
                            FARGPU_RETURN_IF_ERROR(worker.parts().output.flush());
                          return worker.responder().reply(header, result);
                        });
  });
}

// The client's functions may run for long, and a driver may wait for them here.
Status manual_fgStreamCreate(Worker& worker, const Request& request) {
  return decode_fgStreamCreate(worker, request, [&](const auto& given) -> Status {
    using schema::kPlainStream, schema::kStreamWithPriority, schema::kStreamOfGreenContext;
    const unsigned kind = given.kind;
    const CUgreenCtx green = worker.parts().contexts.green(request.header.context);
    if (kind > kStreamOfGreenContext || (kind == kStreamOfGreenContext && green == nullptr))
      return answer(worker, request, CUDA_ERROR_INVALID_VALUE);
    if (kind == kStreamOfGreenContext) FARGPU_NEEDS_DRIVER(cuGreenCtxStreamCreate);
    // Each stream of a green context is as if it were made so.
    const unsigned flags = green != nullptr ? unsigned{CU_STREAM_NON_BLOCKING} : given.flags;
    CUstream const ready = worker.parts().stream_stock.take(
        request.header.context, {flags, kind == kPlainStream ? 0 : given.priority});
    if (ready != nullptr) {
      const CUresult added =
          worker.add(rpc::HandleKind::kStream, given.stream_id, ready, request.header.context);
      return added == CUDA_SUCCESS ? answer(worker, request, added)
                                   : refused_id(worker, request, "fgStreamCreate", added);
    }
    const auto made = std::make_shared<CUstream>();
    const LaterReply later(worker, request);
    with_memory(
        worker,
        [later, made, green, given](const Finished& done) {
          later.worker().parts().completion.off_thread(
              later.header().context,
              [&driver = later.worker().driver(), made, green, given] {
                if (given.kind == kPlainStream)
                  return driver.cuStreamCreate(made.get(), given.flags);
                if (given.kind == kStreamWithPriority)
                  return driver.cuStreamCreateWithPriority(made.get(), given.flags, given.priority);
                return driver.cuGreenCtxStreamCreate(made.get(), green, given.flags,
                                                     given.priority);
              },
              done);
        },
        [later, made, id = given.stream_id](CUresult result) {
          if (result == CUDA_SUCCESS) {
            result = later.add(rpc::HandleKind::kStream, id, *made);
            if (result != CUDA_SUCCESS && later.context_lives())
              later.worker().driver().cuStreamDestroy_v2(*made);
          }
          later.send(result);
        });
    return Status();
  });
}

Status manual_cuStreamDestroy_v2(Worker& worker, const Request& request) {
  return decoded("cuStreamDestroy_v2", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const uint64_t id = reader.getRoot<schema::CuStreamDestroyV2Params>().getHStream();
    CopyFences::Stream stream;
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.parts().core.find_stream(id, &stream));
    const uint16_t context = worker.parts().handles.context_of(id);
    if (context == 0) return answer(worker, request, CUDA_ERROR_INVALID_HANDLE);
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.enter_context(context));
    const CUresult result = worker.parts().completion.stream_ends(context, stream.handle);
    if (result == CUDA_SUCCESS) worker.remove(id);
    return answer(worker, request, result);
  });
}

Status manual_cuStreamSynchronize(Worker& worker, const Request& request) {
  return decoded("cuStreamSynchronize", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::CuStreamSynchronizeParams>();
    FrameStream stream;
    FARGPU_ANSWER_UNLESS_SUCCESS(
        worker.parts().core.enter_stream(request.header.context, params.getHStream(), &stream));
    const LaterReply later(worker, request);
    worker.parts().completion.when(UntilPassed{stream.context, stream.handle},
                                   [later](CUresult result) { later.send_synchronised(result); });
    return Status();
  });
}

Status manual_fgStreamSynchronize(Worker& worker, const Request& request) {
  return decoded("fgStreamSynchronize", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::FgStreamSynchronizeParams>();
    using Word = std::atomic<uint32_t>;
    SessionParts& parts = worker.parts();
    const SharedHost::MappingPointer memory =
        parts.shared_host.find(params.getWord(), sizeof(Word));
    if (memory == nullptr || params.getWord() % alignof(Word) != 0)
      return answer(worker, request, CUDA_ERROR_INVALID_VALUE);
    FrameStream stream;
    FARGPU_ANSWER_UNLESS_SUCCESS(
        parts.core.enter_stream(request.header.context, params.getStream(), &stream));
    const LaterReply later(worker, request);
    parts.completion.when(UntilPassed{stream.context, stream.handle},
                          StreamWord{reinterpret_cast<Word*>(params.getWord()),
                                     params.getOnDevice(), params.getValue(), memory},
                          [later](CUresult result) { later.send_synchronised(result); });
    return Status();
  });
}

// How far the client is ahead of the GPU in the stream.
Status manual_fgQueueMark(Worker& worker, const Request& request) {
  return decoded("fgQueueMark", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::FgQueueMarkParams>();
    const auto tell = [&worker, ticket = params.getTicket()](CUresult) {
      rpc::Responder::Frame frame(worker.responder(), wire::kQueueReached,
                                  schema::fixed_bytes<schema::QueueReached>());
      frame.init<schema::QueueReached>().setTicket(ticket);
      // A failure means that the session is lost, which the executor sees by itself.
      (void)frame.send(0);
    };
    const uint16_t its_context = worker.parts().handles.context_of(params.getStream());
    const uint16_t context = its_context != 0 ? its_context : request.header.context;
    CUstream stream = nullptr;
    CUresult result = worker.enter_context(context);
    if (result == CUDA_SUCCESS)
      result = find_handle(worker, rpc::HandleKind::kStream, params.getStream(), &stream);
    if (result != CUDA_SUCCESS) {
      tell(result);
      return answer(worker, request, result);
    }
    worker.parts().completion.when(UntilPassed{context, stream}, tell);
    return answer(worker, request, CUDA_SUCCESS);
  });
}

namespace {

using schema::is_wait;

// A wait is in the stream now.
void count_until_passed(SessionParts& parts, const FrameStream& stream) {
  if (parts.contexts.enter(stream.context) == CUDA_SUCCESS)
    parts.completion.keep(UntilPassed{stream.context, stream.handle},
                          parts.copy_fences.value_wait());
}

// The driver's answer to the call that puts one into the stream.
template <typename Arguments>
Status waits(Worker& worker, const Request& request, const Arguments& given, CUresult result) {
  if (result == CUDA_SUCCESS) count_until_passed(worker.parts(), given.submission.stream());
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

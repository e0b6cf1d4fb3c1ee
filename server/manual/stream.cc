// Streams: waiting is an event that is polled between frames.
#include "generated/schema/stream.capnp.h"
#include "server/manual/manual.h"
#include "server/manual/query.h"

namespace fargpu::server {

Status manual_cuStreamQuery(Worker& worker, const Request& request) {
  return decoded("cuStreamQuery", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::CuStreamQueryParams>();
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.enter_context(request.header.context));
    const auto ask = [&worker, id = params.getHStream()] {
      CopyFences::Stream stream;
      const CUresult found = worker.services().look_up_stream(id, &stream);
      return found == CUDA_SUCCESS ? worker.driver().cuStreamQuery(stream.handle) : found;
    };
    return answer_query(worker, request, ask,
                        [&worker](const wire::FrameHeader& header, CUresult result) {
                          if (result != CUDA_ERROR_NOT_READY)
                            FARGPU_RETURN_IF_ERROR(worker.services().flush_output());
                          return worker.responder().reply(header, result);
                        });
  });
}

Status manual_cuStreamDestroy_v2(Worker& worker, const Request& request) {
  return decoded("cuStreamDestroy_v2", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const uint64_t id = reader.getRoot<schema::CuStreamDestroyV2Params>().getHStream();
    CopyFences::Stream stream;
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.services().look_up_stream(id, &stream));
    const uint16_t context = worker.services().context_of(id);
    if (context == 0) return answer(worker, request, CUDA_ERROR_INVALID_HANDLE);
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.enter_context(context));
    const CUresult result = worker.services().completion().stream_ends(context, stream.handle);
    if (result == CUDA_SUCCESS) worker.remove(id);
    return answer(worker, request, result);
  });
}

Status manual_cuStreamSynchronize(Worker& worker, const Request& request) {
  return decoded("cuStreamSynchronize", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::CuStreamSynchronizeParams>();
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.enter_context(request.header.context));
    CopyFences::Stream stream;
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.services().look_up_stream(params.getHStream(), &stream));
    const LaterReply later(worker, request);
    worker.services().completion().when_reached(
        request.header.context, stream.handle,
        [later](CUresult result) { later.send_synchronised(result); });
    return Status();
  });
}

}  // namespace fargpu::server

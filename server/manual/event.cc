// Events: waiting is polling between frames.
#include "generated/schema/event.capnp.h"
#include "server/manual/manual.h"

namespace fargpu::server {

Status manual_cuEventSynchronize(Worker& worker, const Request& request) {
  return decoded("cuEventSynchronize", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::CuEventSynchronizeParams>();
    CUevent event = nullptr;
    FARGPU_ANSWER_UNLESS_SUCCESS(
        find_handle(worker, rpc::HandleKind::kEvent, params.getHEvent(), &event));
    const LaterReply later(worker, request);
    const uint64_t id = params.getHEvent();
    worker.defer([later, id] {
      Worker& worker = later.worker();
      // Looked up again each time: another thread may have destroyed it meanwhile.
      CUevent event = nullptr;
      CUresult result = find_handle(worker, rpc::HandleKind::kEvent, id, &event);
      if (result == CUDA_SUCCESS) result = worker.enter_context(later.header().context);
      if (result == CUDA_SUCCESS) result = worker.driver().cuEventQuery(event);
      if (result == CUDA_ERROR_NOT_READY) return false;
      // Done already, so this does not wait: it makes the driver write out what kernels printed.
      if (result == CUDA_SUCCESS) result = worker.driver().cuEventSynchronize(event);
      later.send_synchronised(result);
      return true;
    });
    return Status();
  });
}

}  // namespace fargpu::server

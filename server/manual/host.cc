// Host functions and mapped host memory: what belongs to the client's process.
#include "generated/schema/internal.capnp.h"

#include <cstring>

#include "server/host_gate.h"
#include "server/host_mirror.h"
#include "server/manual/manual.h"

namespace fargpu::server {

Status manual_fgHostCall(Worker& worker, const Request& request) {
  return decoded("fgHostCall", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::FgHostCallParams>();
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.enter_context(request.header.context));
    CUstream stream = nullptr;
    FARGPU_ANSWER_UNLESS_SUCCESS(find_handle(worker, rpc::HandleKind::kStream, params.getStream(), &stream));
    return answer(worker, request,
                  worker.services().host_gate().enqueue(stream, params.getId(), params.getWithStatus() != 0));
  });
}

Status manual_fgHostMap(Worker& worker, const Request& request) {
  return decoded("fgHostMap", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::FgHostMapParams>();
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.enter_context(request.header.context));
    CUdeviceptr device_pointer = 0;
    FARGPU_ANSWER_UNLESS_SUCCESS(
        worker.services().host_mirror().map(params.getAddress(), params.getBytes(), &device_pointer));
    rpc::Responder::Frame frame(worker.responder(), request.header,
                                schema::fixed_bytes<schema::FgHostMapResults>());
    frame.init<schema::FgHostMapResults>().setDevicePointer(device_pointer);
    return frame.send(CUDA_SUCCESS);
  });
}

Status manual_fgHostUnmap(Worker& worker, const Request& request) {
  return decoded("fgHostUnmap", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const uint64_t address = reader.getRoot<schema::FgHostUnmapParams>().getAddress();
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.enter_context(request.header.context));
    // Kernels may still use the memory: it goes when the context is idle.
    const LaterReply later(worker, request);
    worker.services().completion().when_idle(request.header.context, [later, address](CUresult) {
      Worker& worker = later.worker();
      const CUresult result = worker.enter_context(later.header().context);
      later.send(result == CUDA_SUCCESS ? worker.services().host_mirror().unmap(address) : result);
    });
    return Status();
  });
}

Status manual_fgHostPush(Worker& worker, const Request& request) {
  return decoded("fgHostPush", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::FgHostPushParams>();
    if (params.getBytes() != request.bulk.size()) return malformed("fgHostPush", "data has the wrong size");
    const std::span<std::byte> mirror = worker.services().host_mirror().find(params.getAddress(), request.bulk.size());
    if (mirror.size() != request.bulk.size()) return answer(worker, request, CUDA_ERROR_INVALID_VALUE);
    std::memcpy(mirror.data(), request.bulk.data(), mirror.size());
    return answer(worker, request, CUDA_SUCCESS);
  });
}

Status manual_fgHostPull(Worker& worker, const Request& request) {
  return decoded("fgHostPull", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::FgHostPullParams>();
    if (params.getBytes() > worker.services().max_bulk_bytes()) {
      return malformed("fgHostPull", "more bytes are asked for than one frame may bring");
    }
    const std::span<std::byte> mirror = worker.services().host_mirror().find(params.getAddress(), params.getBytes());
    if (mirror.size() != params.getBytes()) return answer(worker, request, CUDA_ERROR_INVALID_VALUE);
    rpc::Responder::Frame frame(worker.responder(), request.header, 0);
    const std::span<const std::byte> bulk[] = {mirror};
    return frame.send(CUDA_SUCCESS, bulk);
  });
}

}  // namespace fargpu::server

// Host functions and mapped host memory: what belongs to the client's process.
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "generated/schema/internal.capnp.h"
#include "server/host_gate.h"
#include "server/host_mirror.h"
#include "server/manual/manual.h"
#include "server/shared_host.h"

namespace fargpu::server {
namespace {

// Calls done() when no context of the session has work left.
void when_all_idle(Worker& worker, std::function<void()> done) {
  const std::vector<uint16_t> contexts = worker.services().context_ids();
  if (contexts.empty()) {
    done();
    return;
  }
  const auto left = std::make_shared<size_t>(contexts.size());
  for (const uint16_t context : contexts) {
    worker.services().completion().when_idle(context, [left, done](CUresult) {
      if (--*left == 0) done();
    });
  }
}

}  // namespace

Status manual_fgHostCall(Worker& worker, const Request& request) {
  return decoded("fgHostCall", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::FgHostCallParams>();
    const uint64_t id = params.getStream();
    const uint16_t its_context = worker.services().context_of(id);
    const uint16_t context = its_context != 0 ? its_context : request.header.context;
    CUstream stream = nullptr;
    CUresult result = worker.enter_context(context);
    if (result == CUDA_SUCCESS) result = find_handle(worker, rpc::HandleKind::kStream, id, &stream);
    HostGate& gate = worker.services().host_gate();
    if (result != CUDA_SUCCESS) {
      gate.refuse(params.getId(), result);
      return answer(worker, request, result);
    }
    return answer(worker, request,
                  gate.enqueue(context, stream, params.getId(), params.getWithStatus() != 0));
  });
}

Status manual_fgHostMap(Worker& worker, const Request& request) {
  return decoded("fgHostMap", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::FgHostMapParams>();
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.enter_context(request.header.context));
    CUdeviceptr device_pointer = 0;
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.services().host_mirror().map(
        params.getAddress(), params.getBytes(), &device_pointer));
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
    if (params.getBytes() != request.bulk.size())
      return malformed("fgHostPush", "data has the wrong size");
    const std::span<std::byte> mirror =
        worker.services().host_mirror().find(params.getAddress(), request.bulk.size());
    if (mirror.size() != request.bulk.size())
      return answer(worker, request, CUDA_ERROR_INVALID_VALUE);
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
    const std::span<std::byte> mirror =
        worker.services().host_mirror().find(params.getAddress(), params.getBytes());
    if (mirror.size() != params.getBytes())
      return answer(worker, request, CUDA_ERROR_INVALID_VALUE);
    rpc::Responder::Frame frame(worker.responder(), request.header, 0);
    const std::span<const std::byte> bulk[] = {mirror};
    return frame.send(CUDA_SUCCESS, bulk);
  });
}

Status manual_fgHostShare(Worker& worker, const Request& request) {
  return decoded("fgHostShare", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::FgHostShareParams>();
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.enter_context(request.header.context));
    SharedHost& shared = worker.services().shared_host();
    SharedHost::Held mapping;
    FARGPU_ANSWER_UNLESS_SUCCESS(shared.map(worker.services().descriptor_passing(),
                                            params.getNumber(), params.getAddress(),
                                            params.getBytes(), request.header.context, &mapping));
    const LaterReply later(worker, request);
    const auto device_pointer = std::make_shared<CUdeviceptr>(0);
    worker.services().completion().aside(
        request.header.context,
        [&shared, mapping, device_pointer] {
          return shared.enroll(*mapping, device_pointer.get());
        },
        [later, mapping, device_pointer](CUresult result) {
          if (result != CUDA_SUCCESS) return later.send(result);
          Worker& worker = later.worker();
          worker.services().shared_host().add(mapping);
          rpc::Responder::Frame frame(worker.responder(), later.header(),
                                      schema::fixed_bytes<schema::FgHostShareResults>());
          frame.init<schema::FgHostShareResults>().setDevicePointer(*device_pointer);
          (void)frame.send(CUDA_SUCCESS);
        });
    return Status();
  });
}

Status manual_fgHostUnshare(Worker& worker, const Request& request) {
  return decoded("fgHostUnshare", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const uint64_t address = reader.getRoot<schema::FgHostUnshareParams>().getAddress();
    const LaterReply later(worker, request);
    // Memory of one context is accessible in all of them.
    when_all_idle(worker, [later, address] {
      Worker& worker = later.worker();
      if (address == 0) return later.send(CUDA_SUCCESS);
      SharedHost& shared = worker.services().shared_host();
      const SharedHost::Held mapping = shared.remove(address);
      if (mapping == nullptr) return later.send(CUDA_ERROR_NOT_MAPPED);
      worker.services().completion().aside(
          mapping->context(), [&shared, mapping] { return shared.withdraw(*mapping); },
          [later](CUresult result) { later.send(result); });
    });
    return Status();
  });
}

}  // namespace fargpu::server

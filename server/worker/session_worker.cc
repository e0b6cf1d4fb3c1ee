#include "server/worker/session_worker.h"

#include <kj/exception.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "common/wire/slot_message.h"
#include "generated/schema/control.capnp.h"
#include "generated/schema/internal.capnp.h"

namespace fargpu::server {

using rpc::HandleKind;

CUresult SessionWorker::find(HandleKind kind, uint64_t id, void** handle) {
  *handle = nullptr;
  if (kind == HandleKind::kStream) {
    FrameStream stream;
    if (const CUresult result = parts_.core.find_stream(id, &stream); result != CUDA_SUCCESS)
      return result;
    *handle = stream.handle;
    return parts_.copy_fences.before_work(stream);
  }
  if (id == 0) return CUDA_SUCCESS;
  if (kind == HandleKind::kContext) {
    *handle = id > UINT16_MAX ? nullptr : parts_.contexts.find(static_cast<uint16_t>(id));
    return *handle == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
  }
  if (kind == HandleKind::kFunction && rpc::handle_kind(id) == HandleKind::kKernel)
    kind = HandleKind::kKernel;
  return parts_.handles.find(kind, id, handle);
}

Status SessionWorker::describe(const wire::FrameHeader& request) {
  constexpr size_t kMostWaits = 16;
  const PendingList& pending = parts_.pending;
  const size_t waits = std::min(kMostWaits, pending.size());
  rpc::Responder::Frame frame(parts_.responder, request, 1024);
  auto inspection = frame.init<schema::Inspection>();
  inspection.setHostFunctions(static_cast<uint32_t>(parts_.host_gate.waiting()));
  inspection.setHelperCalls(static_cast<uint32_t>(parts_.completion.calls_under_way()));
  auto list = inspection.initWaits(static_cast<unsigned>(waits));
  auto entry = pending.entries().begin();
  for (unsigned i = 0; i < waits; ++i, ++entry) {
    list[i].setOpcode(entry->opcode);
    list[i].setSeconds(
        std::chrono::duration<double>(PendingList::Clock::now() - entry->since).count());
  }
  return frame.send(CUDA_SUCCESS);
}

size_t SessionWorker::poll() {
  const size_t posted = parts_.posted.run();
  if (parts_.host_gate.next_look() != transport::kNoDeadline) parts_.host_gate.look();
  parts_.copy_fences.poll();
  return posted + parts_.pending.poll() + parts_.ordered_copies.poll();
}

Result<std::span<std::byte>> SessionWorker::receive_bulk(uint64_t bytes, uint16_t context) {
  if (parts_.contexts.enter(context) != CUDA_SUCCESS) context = 0;
  FARGPU_ASSIGN_OR_RETURN(parts_.bulk,
                          parts_.staging.acquire(bytes, StagingUse::kToDevice, context));
  return parts_.bulk.bytes();
}

Result<std::span<std::byte>> SessionWorker::receive_fetched(std::span<const std::byte> body,
                                                            uint64_t bytes) {
  try {
    wire::SegmentReader reader(body);
    const auto params = reader.getRoot<schema::FgFetchedParams>();
    FARGPU_ASSIGN_OR_RETURN(
        const std::span<std::byte> target,
        parts_.ordered_copies.target(params.getId(), params.getOffset(), bytes));
    return target.empty() ? receive_bulk(bytes, 0) : target;
  } catch (const kj::Exception& error) {
    return Status(StatusCode::kProtocol,
                  std::string("fgFetched: ") + error.getDescription().cStr());
  }
}

}  // namespace fargpu::server

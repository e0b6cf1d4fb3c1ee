#include "server/worker/session_worker.h"

#include <kj/exception.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "common/wire/slot_message.h"
#include "generated/schema/control.capnp.h"
#include "generated/schema/internal.capnp.h"
#include "generated/schema/opcodes.h"
#include "generated/server/dispatch.h"

namespace fargpu::server {
namespace {

bool makes_memory(uint16_t opcode) {
  switch (opcode) {
    case schema::op_cuMemAlloc_v2:
    case schema::op_cuMemAllocPitch_v2:
    case schema::op_cuMemAllocAsync:
    case schema::op_cuMemAllocFromPoolAsync:
    case schema::op_cuMemPoolCreate:
    case schema::op_cuMemCreate:
    case schema::op_cuMemMap:
    case schema::op_cuMemSetAccess:
    case schema::op_cuArrayCreate_v2:
    case schema::op_cuArray3DCreate_v2:
    case schema::op_cuMipmappedArrayCreate:
    case schema::op_cuCtxSetLimit:
    case schema::op_fgGraphAllocate:
    case schema::op_fgPrimaryRetain:
    case schema::op_fgContextCreate:
    case schema::op_fgGreenCreate:
      return true;
    default:
      return false;
  }
}

}  // namespace

using rpc::HandleKind;

CUresult SessionWorker::find(HandleKind kind, uint64_t id, void** handle) {
  *handle = nullptr;
  if (kind == HandleKind::kStream) {
    FrameStream stream;
    if (const CUresult result = parts_.core.find_stream(id, &stream); result != CUDA_SUCCESS)
      return result;
    *handle = stream.handle;
    return CUDA_SUCCESS;
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

// Only a request with a waiting caller: work submitted without a wait has a place in the order of
// its stream.
bool SessionWorker::tries_again(const Request& request) {
  if (trying_again_ || !makes_memory(request.header.opcode) || !request.bulk.empty() ||
      (request.header.flags & wire::kWantReply) == 0 || !parts_.ended_sessions.any_others())
    return false;
  const DispatchEntry* const entry = find_dispatch(request.header.opcode);
  if (entry == nullptr || entry->handler == nullptr) return false;
  struct Kept {
    wire::FrameHeader header;
    std::vector<uint64_t> body;  // words, for the alignment
  };
  const auto kept = std::make_shared<Kept>(
      Kept{request.header, std::vector<uint64_t>((request.body.size() + 7) / 8)});
  std::memcpy(kept->body.data(), request.body.data(), request.body.size());
  parts_.memory.forget_refusal();
  parts_.ended_sessions.wait([this, kept, bytes = request.body.size(), handler = entry->handler] {
    trying_again_ = true;
    const auto body = std::as_bytes(std::span(kept->body)).first(bytes);
    // A transport that fails is noticed by the executor. The body was read before.
    (void)handler(*this, {kept->header, body, {}});
    trying_again_ = false;
  });
  return true;
}

void SessionWorker::before_error() {
  parts_.memory.tell_refusal();
  parts_.output.before_error();
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
  auto operation = pending.operations().begin();
  for (unsigned i = 0; i < waits; ++i, ++operation) {
    list[i].setOpcode(operation->opcode);
    list[i].setSeconds(
        std::chrono::duration<double>(PendingList::Clock::now() - operation->since).count());
  }
  return frame.send(CUDA_SUCCESS);
}

size_t SessionWorker::poll() {
  const size_t posted = parts_.posted.run();
  if (parts_.host_gate.next_look() != transport::kNoDeadline) parts_.host_gate.look();
  if (parts_.memory.next_look() != transport::kNoDeadline) parts_.memory.look();
  parts_.copy_fences.poll();
  const size_t reached = parts_.host_gate.any_to_poll() ? parts_.host_gate.poll() : 0;
  return posted + reached + parts_.pending.poll() + parts_.ordered_copies.poll();
}

Result<std::span<std::byte>> SessionWorker::receive_bulk(uint64_t bytes, uint16_t context) {
  if (parts_.contexts.enter(context) != CUDA_SUCCESS) context = 0;
  FARGPU_ASSIGN_OR_RETURN(parts_.bulk, parts_.staging.acquire_in_passing(bytes, context));
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

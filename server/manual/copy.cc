// Copies between host and device, and those of arrays: the two calls that each of them becomes, and
// which route they take (common/copy/copy.h). Here are the routes through frames, through memory
// that both ends share, and inside the device.
#include <memory>

#include "common/copy/limits.h"
#include "common/rpc/completion_word.h"
#include "generated/schema/internal.capnp.h"
#include "generated/schema/opcodes.h"
#include "server/copy/copy_rows.h"
#include "server/copy/staging.h"
#include "server/manual/copies.h"
#include "server/memory/shared_host.h"
#include "server/stream/copy_fences.h"
#include "server/stream/host_gate.h"
#include "server/stream/stream_events.h"

namespace fargpu::server {

using copy::Location;
using End = copy::Completion::Kind;

const char* CopyCall::name() const { return schema::opcode_name(request.header.opcode); }

CUresult CopyCall::enter() {
  SessionParts& parts = worker.parts();
  CUresult result = worker.enter_context(request.header.context);
  if (result == CUDA_SUCCESS) {
    const Submission submission(worker, stream_id);
    stream = submission.stream();
    result = submission.result();
  }
  if (result == CUDA_SUCCESS) result = parts.contexts.enter(stream.context);
  for (copy::Location* end : {&copy.from, &copy.to}) {
    if (result != CUDA_SUCCESS || end->kind != Location::Kind::kArray) continue;
    CUarray array = nullptr;
    result = find_handle(worker, rpc::HandleKind::kArray, end->position.array, &array);
    end->position.array = reinterpret_cast<uint64_t>(array);
  }
  return result;
}

CUresult CopyCall::order() const {
  if (copy.order == copy::Order::kStream) return CUDA_SUCCESS;
  CopyFences& fences = worker.parts().copy_fences;
  // What the application submits to let the stream go on must not wait for the stream.
  if (copy.order != copy::Order::kOwnStream &&
      (fences.any_value_wait() || worker.parts().host_gate.outstanding())) {
    return CUDA_SUCCESS;
  }
  return fences.add(stream, copy.order == copy::Order::kReturned);
}

namespace {

CUresult copy_block(const CopyCall& call, const std::byte* block) {
  return copy_rows(call.worker.driver(), call.copy.shape, call.copy.device(),
                   copy::dense(reinterpret_cast<uint64_t>(block), call.copy.shape),
                   call.copy.to_device(), call.stream.handle);
}

Status copy_from_frame(CopyCall& call) {
  Worker& worker = call.worker;
  const Request& request = call.request;
  FARGPU_ANSWER_UNLESS_SUCCESS(call.enter());
  CUresult result = copy_block(call, request.bulk.data());
  if (result == CUDA_SUCCESS) result = call.order();
  StagingBlock bulk = worker.parts().take_bulk();
  // The copy engine reads the block until the stream gets there, also when a later slice was
  // refused.
  if (bulk.pinned()) worker.parts().completion.keep(call.passed(), std::move(bulk));
  return answer(worker, request, result);
}

Status copy_to_frame(CopyCall& call) {
  Worker& worker = call.worker;
  const Request& request = call.request;
  if (call.bytes() > worker.parts().max_bulk_bytes)
    return malformed(call.name(), "more bytes are asked for than one frame may bring");
  FARGPU_ANSWER_UNLESS_SUCCESS(call.enter());
  Result<StagingBlock> acquired =
      worker.parts().staging.acquire(call.bytes(), StagingUse::kFromDevice, call.context());
  if (!acquired.ok()) return answer(worker, request, CUDA_ERROR_OUT_OF_MEMORY);
  auto block = std::make_shared<StagingBlock>(std::move(*acquired));
  const CUresult started = copy_block(call, block->bytes().data());
  const LaterReply later(worker, request);
  worker.parts().completion.when(call.passed(), [later, block, started](CUresult reached) {
    const CUresult result = started != CUDA_SUCCESS ? started : reached;
    if (result != CUDA_SUCCESS) {
      later.send_synchronised(result);
      return;
    }
    (void)later.worker().parts().output.flush();
    rpc::Responder::Frame frame(later.worker().responder(), later.header(), 0);
    const std::span<const std::byte> bulk[] = {block->bytes()};
    (void)frame.send(CUDA_SUCCESS, bulk);
  });
  return Status();
}

// Puts a copy straight from or to the client's memory into the stream. CUDA_ERROR_INVALID_VALUE:
// the host end is not inside one shared mapping.
CUresult start_shared(const CopyCall& call) {
  const copy::Rows& host = call.copy.host().rows;
  if (call.worker.parts().shared_host.find(host.address, span_of(call.copy.shape, host)) == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  return copy_rows(call.worker.driver(), call.copy.shape, call.copy.device(), host,
                   call.copy.to_device(), call.stream.handle);
}

Status copy_shared(CopyCall& call) {
  CUresult result = call.enter();
  if (result == CUDA_SUCCESS) result = start_shared(call);
  if (result == CUDA_SUCCESS) result = call.order();
  return answer(call.worker, call.request, result);
}

Status copy_shared_with_word(CopyCall& call) {
  Worker& worker = call.worker;
  const copy::Completion& completion = call.copy.completion;
  const SharedHost::MappingPointer mapping =
      worker.parts().shared_host.find(completion.word, sizeof(rpc::CompletionWord));
  if (mapping == nullptr || completion.word % alignof(rpc::CompletionWord) != 0)
    return answer(worker, call.request, CUDA_ERROR_INVALID_VALUE);
  // From here on the client may be waiting for the word, so that every way out sets it.
  auto* const word = reinterpret_cast<rpc::CompletionWord*>(completion.word);
  CUresult result = call.enter();
  if (result != CUDA_SUCCESS) {
    rpc::publish(*word, completion.number, result);
    return answer(worker, call.request, result);
  }
  result = start_shared(call);
  if (result == CUDA_SUCCESS) result = call.order();
  const bool to_host = !call.copy.to_device();
  worker.parts().completion.when(call.passed(), [&worker, mapping, word, value = completion.number,
                                                 result, to_host](CUresult reached) {
    // A call waits for bytes copied to the host: the output of device code is sent first.
    if (to_host) (void)worker.parts().output.flush();
    if (reached != CUDA_SUCCESS) worker.before_error();
    rpc::publish(*word, value, result != CUDA_SUCCESS ? result : reached,
                 worker.parts().output.notices());
  });
  return answer(worker, call.request, to_host ? CUDA_SUCCESS : result);
}

// A driver reads a small source in its call if the stream has no work of its own, even where the
// legacy stream has to wait for others. A record is such work there.
CUresult take_turn(const CopyCall& call) {
  if (!call.copy.to_device() || call.bytes() > copy::kTakenInCall) return CUDA_SUCCESS;
  StreamEvents& events = call.worker.parts().stream_events;
  CUevent event = nullptr;
  const CUresult result = events.record(call.context(), call.stream.handle, &event);
  if (event != nullptr) events.give_back(call.context(), event);
  return result;
}

Status copy_shared_and_reply(CopyCall& call) {
  Worker& worker = call.worker;
  const Request& request = call.request;
  FARGPU_ANSWER_UNLESS_SUCCESS(call.enter());
  FARGPU_ANSWER_UNLESS_SUCCESS(take_turn(call));
  FARGPU_ANSWER_UNLESS_SUCCESS(start_shared(call));
  const LaterReply later(worker, request);
  worker.parts().completion.when(call.passed(),
                                 [later](CUresult reached) { later.send_synchronised(reached); });
  return Status();
}

Status copy_inside_device(CopyCall& call) {
  CUresult result = call.enter();
  if (result == CUDA_SUCCESS)
    result = copy_inside(call.worker.driver(), call.copy.shape, call.copy.to, call.copy.from,
                         call.stream.handle);
  return answer(call.worker, call.request, result);
}

// What there is; anything else breaks the protocol.
struct Route {
  Location::Kind host;
  bool to_device;
  End end;
  Status (*carry)(CopyCall& call);
};
constexpr Route kRoutes[] = {
    {Location::Kind::kFrame, true, End::kNothing, copy_from_frame},
    {Location::Kind::kFrame, true, End::kFollow, fetch},
    {Location::Kind::kFrame, true, End::kAmended, amended},
    {Location::Kind::kFrame, false, End::kReply, copy_to_frame},
    {Location::Kind::kFrame, false, End::kFollow, deliver},
    {Location::Kind::kShared, true, End::kNothing, copy_shared},
    {Location::Kind::kShared, true, End::kWord, copy_shared_with_word},
    {Location::Kind::kShared, true, End::kReply, copy_shared_and_reply},
    {Location::Kind::kShared, false, End::kNothing, copy_shared},
    {Location::Kind::kShared, false, End::kWord, copy_shared_with_word},
    {Location::Kind::kShared, false, End::kReply, copy_shared_and_reply},
    {Location::Kind::kRemote, true, End::kNothing, copy_from_remote},
    {Location::Kind::kRemote, true, End::kNotice, copy_from_remote},
    {Location::Kind::kRemote, false, End::kReply, copy_to_remote},
    {Location::Kind::kRemote, false, End::kNotice, copy_to_remote},
    {Location::Kind::kRemote, false, End::kFollow, deliver},
    {Location::Kind::kDevice, true, End::kNothing, copy_inside_device},
    {Location::Kind::kArray, true, End::kNothing, copy_inside_device},
};

// `data_bytes`: of the bulk that the message says it brings or asks for.
template <typename Params>
Status carry(Worker& worker, const Request& request, const Params& params, uint64_t data_bytes,
             bool replies) {
  const char* const name = schema::opcode_name(request.header.opcode);
  const std::span<const std::byte> words = as_bytes(params.getCopy());
  if (params.getCopyBytes() != words.size()) return malformed(name, "copy has the wrong size");
  Copy copy;
  if (const char* const wrong = decode(words, &copy)) return malformed(name, wrong);
  const End end = copy.completion.kind;
  if (replies != (end == End::kReply)) return malformed(name, "it does not end in this way");
  const bool brings = copy.host().kind == Location::Kind::kFrame && end != End::kFollow;
  if (data_bytes != (brings ? copy.shape.bytes() : 0))
    return malformed(name, "the rows do not fill the bytes that travel");
  for (const Route& route : kRoutes) {
    if (route.host != copy.host().kind || route.to_device != copy.to_device() || route.end != end)
      continue;
    CopyCall call{worker, request, copy, params.getStream()};
    return route.carry(call);
  }
  return malformed(name, "a copy of this kind does not end in this way");
}

}  // namespace

Status manual_fgCopy(Worker& worker, const Request& request) {
  return decoded("fgCopy", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::FgCopyParams>();
    if (params.getSrcBytes() != request.bulk.size())
      return malformed("fgCopy", "src has the wrong size");
    return carry(worker, request, params, params.getSrcBytes(), false);
  });
}

Status manual_fgCopyWait(Worker& worker, const Request& request) {
  return decoded("fgCopyWait", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::FgCopyWaitParams>();
    return carry(worker, request, params, params.getDstBytes(), true);
  });
}

}  // namespace fargpu::server

// Copies between the client's registered memory and the device over rdma: by the adapter alone
// where it reaches device memory, else by one-sided transfers into staging memory, in chunks, so
// that the network and the copy engine overlap.
#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include "common/base/log.h"
#include "common/copy/limits.h"
#include "common/wire/control.h"
#include "generated/schema/control.capnp.h"
#include "generated/server/internal_decode.h"
#include "schema/support/sizes.h"
#include "server/copy/copy_rows.h"
#include "server/copy/direct_copy.h"
#include "server/copy/remote_staging.h"
#include "server/manual/copies.h"
#include "server/memory/direct_memory.h"

namespace fargpu::server {
namespace {

using Clock = std::chrono::steady_clock;
using transport::RegisteredMemory;
using transport::RemoteMemory;

// Large enough to fill a link, small enough that the copy engine starts soon.
constexpr size_t kChunk = 1u << 20;
constexpr size_t kMaxChunks = copy::kMostRemote / kChunk;
// Fetching is bounded by the transport's own deadline for a peer that does not answer; this only
// keeps a defect from hanging the session.
constexpr auto kFetchLimit = std::chrono::minutes(2);

struct Staged {
  StagingBlock block;
  const RegisteredMemory* registered = nullptr;
};

CUresult acquire(Worker& worker, uint64_t bytes, StagingUse use, uint16_t context, Staged* staged) {
  Result<StagingBlock> acquired = worker.parts().staging.acquire(bytes, use, context);
  if (!acquired.ok()) return CUDA_ERROR_OUT_OF_MEMORY;
  auto registered = worker.parts().remote_staging.registration(*acquired);
  if (!registered.ok()) {
    log::warn("event=staging-not-registered bytes={} why=\"{}\"", bytes,
              registered.status().message());
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  *staged = {std::move(*acquired), *registered};
  return CUDA_SUCCESS;
}

// All of the copy by one call of the driver, or a few.
CUresult copy_packed(const CopyCall& call, const Staged& staged) {
  const auto memory = reinterpret_cast<uint64_t>(staged.block.bytes().data());
  return copy_rows(call.worker.driver(), call.copy.shape, call.copy.device(),
                   copy::dense(memory, call.copy.shape), call.copy.to_device(), call.stream.handle);
}

// The notice `copied`: at once, because the client has nothing to do until it comes.
void tell_copied(Worker& worker, uint64_t ticket, CUresult result) {
  rpc::Responder::Frame frame(worker.responder(), wire::kCopied,
                              schema::fixed_bytes<schema::Copied>());
  auto copied = frame.init<schema::Copied>();
  copied.setTicket(ticket);
  copied.setResult(result);
  copied.setOutputs(worker.parts().output.notices());
  // A failure means that the session is lost, which the executor sees by itself.
  if (frame.send(0).ok()) (void)worker.responder().flush();
}

// The copy may begin: its context is current and its stream is known.
CUresult prepare(CopyCall& call) {
  if (call.worker.parts().remote_staging.remote() == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  return call.copy.host().holds(call.bytes()) ? call.enter() : CUDA_ERROR_INVALID_VALUE;
}

// Fetches the bytes now and copies them in stream order. A Status: the session is over.
Result<CUresult> fetch_staged(const CopyCall& call) {
  Worker& worker = call.worker;
  const copy::Location& client = call.copy.from;
  const uint64_t bytes = call.bytes();
  RemoteMemory& remote = *worker.parts().remote_staging.remote();
  Staged staged;
  if (const CUresult result =
          acquire(worker, bytes, StagingUse::kToDevice, call.context(), &staged);
      result != CUDA_SUCCESS)
    return result;
  const std::span<std::byte> memory = staged.block.bytes();
  RemoteMemory::Ticket tickets[kMaxChunks];
  size_t chunks = 0;
  for (size_t at = 0; at < bytes; at += kChunk) {
    const size_t n = std::min<size_t>(kChunk, bytes - at);
    FARGPU_ASSIGN_OR_RETURN(
        tickets[chunks++],
        remote.read(client.remote, client.offset + at, *staged.registered, memory.subspan(at, n)));
  }
  const copy::Rows& device = call.copy.to.rows;
  const bool in_chunks = is_dense_memory(call.copy.shape, call.copy.to);
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; i < chunks; ++i) {
    FARGPU_RETURN_IF_ERROR(remote.wait(tickets[i], Clock::now() + kFetchLimit));
    if (!in_chunks || result != CUDA_SUCCESS) continue;
    const size_t at = i * kChunk;
    result = worker.driver().cuMemcpyHtoDAsync_v2(device.address + at, memory.data() + at,
                                                  std::min<size_t>(kChunk, bytes - at),
                                                  call.stream.handle);
  }
  if (!in_chunks) result = copy_packed(call, staged);
  if (staged.block.pinned()) {
    worker.parts().completion.keep(call.passed(), std::move(staged.block));
  }
  return result;
}

using Done = std::function<void(CUresult)>;

// A copy to the client that is under way: its last chunk is followed by done().
struct Delivery {
  Worker& worker;
  Staged staged;
  copy::Location client;
  size_t left;  // chunks whose bytes are not in staging memory yet
  Done done;
  RemoteMemory::Ticket ticket = 0;  // of the last write; 0: none
  CUresult result = CUDA_SUCCESS;
};

void write_chunk(const std::shared_ptr<Delivery>& delivery, size_t at, size_t bytes,
                 CUresult reached) {
  Worker& worker = delivery->worker;
  RemoteMemory& remote = *worker.parts().remote_staging.remote();
  if (delivery->result == CUDA_SUCCESS) delivery->result = reached;
  if (delivery->result == CUDA_SUCCESS) {
    const auto ticket = remote.write(*delivery->staged.registered,
                                     delivery->staged.block.bytes().subspan(at, bytes),
                                     delivery->client.remote, delivery->client.offset + at);
    if (ticket.ok()) {
      delivery->ticket = *ticket;
    } else {
      delivery->result = CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (--delivery->left != 0) return;
  // Writes are seen before what is said now. The adapter still reads the block.
  delivery->done(delivery->result);
  if (delivery->ticket == 0) return;
  worker.defer([delivery, &remote] {
    return remote.wait(delivery->ticket, Clock::now()).code() != StatusCode::kTimeout;
  });
}

// The device's bytes to staging memory in stream order, and from there to the client. Calls done()
// in any case.
void deliver_staged(const CopyCall& call, Done done) {
  Worker& worker = call.worker;
  const uint64_t bytes = call.bytes(), device = call.copy.from.rows.address;
  Staged staged;
  if (const CUresult result =
          acquire(worker, bytes, StagingUse::kFromDevice, call.context(), &staged);
      result != CUDA_SUCCESS)
    return done(result);
  std::byte* const memory = staged.block.bytes().data();
  const bool in_chunks = is_dense_memory(call.copy.shape, call.copy.from);
  const size_t chunk = in_chunks ? kChunk : bytes;
  const auto delivery = std::make_shared<Delivery>(Delivery{
      worker, std::move(staged), call.copy.to, (bytes + chunk - 1) / chunk, std::move(done)});
  for (size_t at = 0; at < bytes; at += chunk) {
    const size_t n = std::min<size_t>(chunk, bytes - at);
    const CUresult started = in_chunks ? worker.driver().cuMemcpyDtoHAsync_v2(
                                             memory + at, device + at, n, call.stream.handle)
                                       : copy_packed(call, delivery->staged);
    worker.parts().completion.when(call.passed(), [delivery, at, n, started](CUresult reached) {
      write_chunk(delivery, at, n, started != CUDA_SUCCESS ? started : reached);
    });
  }
}

}  // namespace

Status copy_from_remote(CopyCall& call) {
  Worker& worker = call.worker;
  if (call.bytes() > copy::kMostRemote)
    return malformed(call.name(), "too many bytes for one call");
  const bool told = call.copy.completion.kind == copy::Completion::Kind::kNotice;
  CUresult result = prepare(call);
  if (result == CUDA_SUCCESS && (told || !start_direct(worker.driver(), worker.parts().memory,
                                                       call.copy, call.stream.handle, &result))) {
    FARGPU_ASSIGN_OR_RETURN(result, fetch_staged(call));
  }
  if (result == CUDA_SUCCESS) result = call.order();
  if (told) tell_copied(worker, call.copy.completion.number, result);
  return answer(worker, call.request, result);
}

Status copy_to_remote(CopyCall& call) {
  Worker& worker = call.worker;
  if (call.bytes() > copy::kMostRemote)
    return malformed(call.name(), "too many bytes for one call");
  CUresult result = prepare(call);
  if (call.copy.completion.kind == copy::Completion::Kind::kNotice) {
    const Done done = [&worker, ticket = call.copy.completion.number](CUresult reached) {
      // A call waits: the output of device code is sent first.
      (void)worker.parts().output.flush();
      if (reached != CUDA_SUCCESS) worker.before_error();
      tell_copied(worker, ticket, reached);
    };
    if (result == CUDA_SUCCESS) {
      deliver_staged(call, done);
    } else {
      done(result);
    }
    return answer(worker, call.request, CUDA_SUCCESS);
  }
  if (result != CUDA_SUCCESS) return answer(worker, call.request, result);
  const Done done = [later = LaterReply(worker, call.request)](CUresult reached) {
    later.send_synchronised(reached);
  };
  if (!start_direct(worker.driver(), worker.parts().memory, call.copy, call.stream.handle,
                    &result)) {
    deliver_staged(call, done);
    return Status();
  }
  if (result != CUDA_SUCCESS) return answer(worker, call.request, result);
  worker.parts().completion.when(call.passed(), done);
  return Status();
}

Status manual_fgRemoteProbe(Worker& worker, const Request& request) {
  return decode_fgRemoteProbe(worker, request, [&](const auto& given) -> Status {
    if (worker.parts().remote_staging.remote() == nullptr)
      return answer(worker, request, CUDA_ERROR_NOT_SUPPORTED);
    Staged staged;
    return answer(worker, request,
                  acquire(worker, std::clamp<uint64_t>(given.bytes, 1, copy::kMostRemote),
                          StagingUse::kToDevice, 0, &staged));
  });
}

Status manual_fgDirectProbe(Worker& worker, const Request& request) {
  constexpr size_t kBytes = 2u << 20;
  FARGPU_ANSWER_UNLESS_SUCCESS(worker.parts().contexts.borrow());
  CUdeviceptr memory = 0;
  FARGPU_ANSWER_UNLESS_SUCCESS(worker.driver().cuMemAlloc_v2(&memory, kBytes));
  DirectMemory& direct = worker.parts().direct_memory;
  std::string why;
  const DirectMemory::Access way = direct.probe(0, memory, kBytes, &why);
  worker.driver().cuMemFree_v2(memory);
  constexpr size_t kLongest = 511;
  if (why.size() > kLongest) why.resize(kLongest);
  rpc::Responder::Frame frame(
      worker.responder(), request.header,
      schema::fixed_bytes<schema::FgDirectProbeResults>() + schema::padded(why.size() + 1));
  auto results = frame.init<schema::FgDirectProbeResults>();
  results.setWay(static_cast<int>(way));
  results.setFromBytes(direct.from());
  results.setReason(why);
  return frame.send(CUDA_SUCCESS);
}

}  // namespace fargpu::server

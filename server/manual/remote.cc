// Copies between the client's registered memory and the device over rdma: by the adapter alone
// where it reaches device memory, else by one-sided transfers into staging memory, in chunks, so
// that the network and the copy engine overlap.
#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include "common/base/log.h"
#include "common/rpc/copy_order.h"
#include "common/wire/control.h"
#include "generated/schema/control.capnp.h"
#include "generated/schema/internal.capnp.h"
#include "schema/support/sizes.h"
#include "server/manual/manual.h"
#include "server/memory/copy_shape.h"
#include "server/memory/direct_memory.h"
#include "server/memory/remote_copy.h"
#include "server/memory/remote_staging.h"

namespace fargpu::server {
namespace {

using Clock = std::chrono::steady_clock;
using transport::RegisteredMemory;
using transport::RemoteKey;
using transport::RemoteMemory;

// Of one call: bounds the staging memory that a client can make this process take at once.
constexpr uint64_t kMaxBytes = 16u << 20;
// Large enough to fill a link, small enough that the copy engine starts soon.
constexpr size_t kChunk = 1u << 20;
constexpr size_t kMaxChunks = kMaxBytes / kChunk;
// Fetching is bounded by the transport's own deadline for a peer that does not answer; this only
// keeps a defect from hanging the session.
constexpr auto kFetchLimit = std::chrono::minutes(2);

template <typename Params>
RemoteKey key_of(const Params& params) {
  return {params.getRemoteAddress(), params.getRemoteBytes(), params.getRemoteKey()};
}

// The shape's bytes; 0 when it is empty or not fit for one call.
template <typename Params>
uint64_t read_shape(const Params& params, Shape* shape) {
  *shape = {params.getPitch(), params.getSlicePitch(), params.getWidthBytes(), params.getHeight(),
            params.getDepth()};
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(shape->width, shape->height, &bytes) ||
      __builtin_mul_overflow(bytes, shape->depth, &bytes))
    return 0;
  return bytes <= kMaxBytes && is_consistent(*shape, bytes) ? bytes : 0;
}

struct Staged {
  std::shared_ptr<StagingBlock> block;
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
  *staged = {std::make_shared<StagingBlock>(std::move(*acquired)), *registered};
  return CUDA_SUCCESS;
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

template <typename Params>
RemoteCopy read_copy(const Params& params, CUdeviceptr device) {
  RemoteCopy copy{key_of(params), params.getOffset(), device};
  copy.bytes = read_shape(params, &copy.shape);
  return copy;
}

// The copy may begin: its context is current and its stream is known.
template <typename Params>
CUresult prepare(Worker& worker, const Request& request, const Params& params, RemoteCopy* copy) {
  if (worker.parts().remote_staging.remote() == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (!copy->inside_client()) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = worker.enter_context(request.header.context); result != CUDA_SUCCESS)
    return result;
  return find_handle(worker, rpc::HandleKind::kStream, params.getStream(), &copy->stream);
}

// Fetches the bytes now and copies them in stream order. A Status: the session is over.
Result<CUresult> fetch_staged(Worker& worker, uint16_t context, const RemoteCopy& copy) {
  RemoteMemory& remote = *worker.parts().remote_staging.remote();
  Staged staged;
  if (const CUresult result = acquire(worker, copy.bytes, StagingUse::kToDevice, context, &staged);
      result != CUDA_SUCCESS)
    return result;
  const std::span<std::byte> memory = staged.block->bytes();
  RemoteMemory::Ticket tickets[kMaxChunks];
  size_t chunks = 0;
  for (size_t at = 0; at < copy.bytes; at += kChunk) {
    const size_t n = std::min<size_t>(kChunk, copy.bytes - at);
    FARGPU_ASSIGN_OR_RETURN(
        tickets[chunks++],
        remote.read(copy.client, copy.offset + at, *staged.registered, memory.subspan(at, n)));
  }
  const bool in_chunks = is_dense(copy.shape);
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; i < chunks; ++i) {
    FARGPU_RETURN_IF_ERROR(remote.wait(tickets[i], Clock::now() + kFetchLimit));
    if (!in_chunks || result != CUDA_SUCCESS) continue;
    const size_t at = i * kChunk;
    result = worker.driver().cuMemcpyHtoDAsync_v2(copy.device + at, memory.data() + at,
                                                  std::min<size_t>(kChunk, copy.bytes - at),
                                                  copy.stream);
  }
  if (!in_chunks)
    result =
        copy_slices(worker.driver(), copy.shape, copy.device, memory.data(), true, copy.stream);
  if (staged.block->pinned()) {
    worker.parts().completion.when_reached(context, copy.stream,
                                           [block = staged.block](CUresult) {});
  }
  return result;
}

using Done = std::function<void(CUresult)>;

// A copy to the client that is under way: its last chunk is followed by done().
struct Delivery {
  Worker& worker;
  Staged staged;
  RemoteKey key;
  uint64_t offset;
  size_t left;  // chunks whose bytes are not in staging memory yet
  Done done;
  RemoteMemory::Ticket ticket = 0;  // of the last write; 0: none
  CUresult result = CUDA_SUCCESS;
};

void deliver(const std::shared_ptr<Delivery>& delivery, size_t at, size_t bytes, CUresult reached) {
  Worker& worker = delivery->worker;
  RemoteMemory& remote = *worker.parts().remote_staging.remote();
  if (delivery->result == CUDA_SUCCESS) delivery->result = reached;
  if (delivery->result == CUDA_SUCCESS) {
    const auto ticket = remote.write(*delivery->staged.registered,
                                     delivery->staged.block->bytes().subspan(at, bytes),
                                     delivery->key, delivery->offset + at);
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
void deliver_staged(Worker& worker, uint16_t context, const RemoteCopy& copy, Done done) {
  Staged staged;
  if (const CUresult result =
          acquire(worker, copy.bytes, StagingUse::kFromDevice, context, &staged);
      result != CUDA_SUCCESS)
    return done(result);
  std::byte* const memory = staged.block->bytes().data();
  const bool in_chunks = is_dense(copy.shape);
  const size_t chunk = in_chunks ? kChunk : copy.bytes;
  const auto delivery =
      std::make_shared<Delivery>(Delivery{worker, std::move(staged), copy.client, copy.offset,
                                          (copy.bytes + chunk - 1) / chunk, std::move(done)});
  for (size_t at = 0; at < copy.bytes; at += chunk) {
    const size_t n = std::min<size_t>(chunk, copy.bytes - at);
    const CUresult started =
        in_chunks
            ? worker.driver().cuMemcpyDtoHAsync_v2(memory + at, copy.device + at, n, copy.stream)
            : copy_slices(worker.driver(), copy.shape, copy.device, memory, false, copy.stream);
    worker.parts().completion.when_reached(
        context, copy.stream, [delivery, at, n, started](CUresult reached) {
          deliver(delivery, at, n, started != CUDA_SUCCESS ? started : reached);
        });
  }
}

}  // namespace

Status manual_fgRemoteProbe(Worker& worker, const Request& request) {
  return decoded("fgRemoteProbe", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const uint64_t bytes = reader.getRoot<schema::FgRemoteProbeParams>().getBytes();
    if (worker.parts().remote_staging.remote() == nullptr)
      return answer(worker, request, CUDA_ERROR_NOT_SUPPORTED);
    Staged staged;
    return answer(worker, request,
                  acquire(worker, std::clamp<uint64_t>(bytes, 1, kMaxBytes), StagingUse::kToDevice,
                          0, &staged));
  });
}

Status manual_fgCopyFromRemote(Worker& worker, const Request& request) {
  return decoded("fgCopyFromRemote", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::FgCopyFromRemoteParams>();
    RemoteCopy copy = read_copy(params, params.getDst());
    if (copy.bytes == 0) return malformed("fgCopyFromRemote", "a shape that is not possible");
    if (!rpc::is_copy_order(params.getOrder()))
      return malformed("fgCopyFromRemote", "an order that does not exist");
    const uint64_t ticket = params.getTicket();
    CUresult result = prepare(worker, request, params, &copy);
    if (result == CUDA_SUCCESS &&
        (ticket != 0 ||
         !start_direct(worker.driver(), worker.parts().memory, copy, true, &result))) {
      FARGPU_ASSIGN_OR_RETURN(result, fetch_staged(worker, request.header.context, copy));
    }
    if (result == CUDA_SUCCESS) result = order_copy(worker, params.getOrder(), params.getStream());
    if (ticket != 0) tell_copied(worker, ticket, result);
    return answer(worker, request, result);
  });
}

Status manual_fgCopyToRemote(Worker& worker, const Request& request) {
  return decoded("fgCopyToRemote", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::FgCopyToRemoteParams>();
    RemoteCopy copy = read_copy(params, params.getSrc());
    if (copy.bytes == 0) return malformed("fgCopyToRemote", "a shape that is not possible");
    FARGPU_ANSWER_UNLESS_SUCCESS(prepare(worker, request, params, &copy));
    const LaterReply later(worker, request);
    CUresult started = CUDA_SUCCESS;
    if (!start_direct(worker.driver(), worker.parts().memory, copy, false, &started)) {
      deliver_staged(worker, request.header.context, copy,
                     [later](CUresult result) { later.send_synchronised(result); });
      return Status();
    }
    if (started != CUDA_SUCCESS) return answer(worker, request, started);
    worker.parts().completion.when_reached(
        request.header.context, copy.stream,
        [later](CUresult result) { later.send_synchronised(result); });
    return Status();
  });
}

Status manual_fgCopyToRemoteLater(Worker& worker, const Request& request) {
  return decoded("fgCopyToRemoteLater", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::FgCopyToRemoteLaterParams>();
    RemoteCopy copy = read_copy(params, params.getSrc());
    if (copy.bytes == 0) return malformed("fgCopyToRemoteLater", "a shape that is not possible");
    const Done done = [&worker, ticket = params.getTicket()](CUresult result) {
      // Somebody waits: what device code printed goes first.
      (void)worker.parts().output.flush();
      if (result != CUDA_SUCCESS) worker.before_error();
      tell_copied(worker, ticket, result);
    };
    if (const CUresult result = prepare(worker, request, params, &copy); result != CUDA_SUCCESS) {
      done(result);
    } else {
      deliver_staged(worker, request.header.context, copy, done);
    }
    return answer(worker, request, CUDA_SUCCESS);
  });
}

Status manual_fgDirectProbe(Worker& worker, const Request& request) {
  constexpr size_t kBytes = 2u << 20;
  FARGPU_ANSWER_UNLESS_SUCCESS(worker.parts().contexts.borrow());
  CUdeviceptr memory = 0;
  FARGPU_ANSWER_UNLESS_SUCCESS(worker.driver().cuMemAlloc_v2(&memory, kBytes));
  DirectMemory& direct = worker.parts().direct_memory;
  std::string why;
  const DirectMemory::Way way = direct.probe(0, memory, kBytes, &why);
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

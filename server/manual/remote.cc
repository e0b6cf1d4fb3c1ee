// Copies between the client's registered memory and the device over rdma: one-sided transfers into staging memory, in chunks, so that the network and the
// copy engine overlap.
#include "generated/schema/internal.capnp.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "common/base/log.h"
#include "server/manual/copy_shape.h"
#include "server/manual/manual.h"
#include "server/remote_staging.h"

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
// Fetching is bounded by the transport's own deadline for a peer that does not answer; this only keeps a defect from hanging the session.
constexpr auto kFetchLimit = std::chrono::minutes(2);

bool is_dense(const Shape& shape) {
  return (shape.height == 1 || shape.pitch == shape.width) && (shape.depth == 1 || shape.slice_pitch == shape.width * shape.height);
}

template <typename Params>
RemoteKey key_of(const Params& params) {
  return {params.getRemoteAddress(), params.getRemoteBytes(), params.getRemoteKey()};
}

// The shape's bytes; 0 when it is empty or not fit for one call.
template <typename Params>
uint64_t read_shape(const Params& params, Shape* shape) {
  *shape = {params.getPitch(), params.getSlicePitch(), params.getWidthBytes(), params.getHeight(), params.getDepth()};
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(shape->width, shape->height, &bytes) || __builtin_mul_overflow(bytes, shape->depth, &bytes)) return 0;
  return bytes <= kMaxBytes && is_consistent(*shape, bytes) ? bytes : 0;
}

struct Staged {
  std::shared_ptr<StagingBlock> block;
  const RegisteredMemory* registered = nullptr;
};

CUresult acquire(Worker& worker, uint64_t bytes, StagingUse use, Staged* staged) {
  Result<StagingBlock> acquired = worker.services().staging().acquire(bytes, use);
  if (!acquired.ok()) return CUDA_ERROR_OUT_OF_MEMORY;
  auto registered = worker.services().remote_staging().registration(*acquired);
  if (!registered.ok()) {
    log::warn("event=staging-not-registered bytes={} why=\"{}\"", bytes, registered.status().message());
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  *staged = {std::make_shared<StagingBlock>(std::move(*acquired)), *registered};
  return CUDA_SUCCESS;
}

// A copy to the client that is under way: its last chunk sends the reply.
struct Delivery {
  LaterReply later;
  Staged staged;
  RemoteKey key;
  uint64_t offset;
  size_t left;                      // chunks whose bytes are not in staging memory yet
  RemoteMemory::Ticket ticket = 0;  // of the last write; 0: none
  CUresult result = CUDA_SUCCESS;
};

void deliver(const std::shared_ptr<Delivery>& delivery, size_t at, size_t bytes, CUresult reached) {
  Worker& worker = delivery->later.worker();
  RemoteMemory& remote = *worker.services().remote_staging().remote();
  if (delivery->result == CUDA_SUCCESS) delivery->result = reached;
  if (delivery->result == CUDA_SUCCESS) {
    const auto ticket = remote.write(*delivery->staged.registered, delivery->staged.block->bytes().subspan(at, bytes), delivery->key,
                                     delivery->offset + at);
    if (ticket.ok()) {
      delivery->ticket = *ticket;
    } else {
      delivery->result = CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (--delivery->left != 0) return;
  // Writes are seen before this reply. The adapter still reads the block.
  delivery->later.send_synchronised(delivery->result);
  if (delivery->ticket == 0) return;
  worker.defer([delivery, &remote] { return remote.wait(delivery->ticket, Clock::now()).code() != StatusCode::kTimeout; });
}

}  // namespace

Status manual_fgRemoteProbe(Worker& worker, const Request& request) {
  return decoded("fgRemoteProbe", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const uint64_t bytes = reader.getRoot<schema::FgRemoteProbeParams>().getBytes();
    if (worker.services().remote_staging().remote() == nullptr) return answer(worker, request, CUDA_ERROR_NOT_SUPPORTED);
    Staged staged;
    return answer(worker, request, acquire(worker, std::clamp<uint64_t>(bytes, 1, kMaxBytes), StagingUse::kToDevice, &staged));
  });
}

Status manual_fgCopyFromRemote(Worker& worker, const Request& request) {
  return decoded("fgCopyFromRemote", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::FgCopyFromRemoteParams>();
    Shape shape;
    const uint64_t bytes = read_shape(params, &shape);
    if (bytes == 0) return malformed("fgCopyFromRemote", "a shape that is not possible");
    RemoteMemory* const remote = worker.services().remote_staging().remote();
    if (remote == nullptr) return answer(worker, request, CUDA_ERROR_NOT_SUPPORTED);
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.enter_context(request.header.context));
    CUstream stream = nullptr;
    FARGPU_ANSWER_UNLESS_SUCCESS(find_handle(worker, rpc::HandleKind::kStream, params.getStream(), &stream));
    Staged staged;
    FARGPU_ANSWER_UNLESS_SUCCESS(acquire(worker, bytes, StagingUse::kToDevice, &staged));
    const std::span<std::byte> memory = staged.block->bytes();

    RemoteMemory::Ticket tickets[kMaxChunks];
    size_t chunks = 0;
    Status failed;
    for (size_t at = 0; at < bytes && failed.ok(); at += kChunk) {
      const auto ticket =
          remote->read(key_of(params), params.getOffset() + at, *staged.registered, memory.subspan(at, std::min(kChunk, bytes - at)));
      if (ticket.ok()) {
        tickets[chunks++] = *ticket;
      } else {
        failed = ticket.status();
      }
    }
    const bool in_chunks = failed.ok() && is_dense(shape);
    CUresult result = failed.ok() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < chunks; ++i) {
      FARGPU_RETURN_IF_ERROR(remote->wait(tickets[i], Clock::now() + kFetchLimit));
      if (!in_chunks || result != CUDA_SUCCESS) continue;
      const size_t at = i * kChunk;
      result = worker.driver().cuMemcpyHtoDAsync_v2(params.getDst() + at, memory.data() + at, std::min<size_t>(kChunk, bytes - at), stream);
    }
    if (!failed.ok() && failed.code() != StatusCode::kInvalidArgument) return failed;
    if (failed.ok() && !in_chunks) result = copy_slices(worker, shape, params.getDst(), memory.data(), true, stream);
    if (staged.block->pinned()) {
      worker.services().completion().when_reached(request.header.context, stream, [block = staged.block](CUresult) {});
    }
    return answer(worker, request, result);
  });
}

Status manual_fgCopyToRemote(Worker& worker, const Request& request) {
  return decoded("fgCopyToRemote", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::FgCopyToRemoteParams>();
    Shape shape;
    const uint64_t bytes = read_shape(params, &shape);
    if (bytes == 0) return malformed("fgCopyToRemote", "a shape that is not possible");
    if (worker.services().remote_staging().remote() == nullptr) return answer(worker, request, CUDA_ERROR_NOT_SUPPORTED);
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.enter_context(request.header.context));
    CUstream stream = nullptr;
    FARGPU_ANSWER_UNLESS_SUCCESS(find_handle(worker, rpc::HandleKind::kStream, params.getStream(), &stream));
    Staged staged;
    FARGPU_ANSWER_UNLESS_SUCCESS(acquire(worker, bytes, StagingUse::kFromDevice, &staged));
    std::byte* const memory = staged.block->bytes().data();

    const bool in_chunks = is_dense(shape);
    const size_t chunk = in_chunks ? kChunk : bytes;
    const auto delivery = std::make_shared<Delivery>(
        Delivery{LaterReply(worker, request), staged, key_of(params), params.getOffset(), (bytes + chunk - 1) / chunk});
    for (size_t at = 0; at < bytes; at += chunk) {
      const size_t n = std::min<size_t>(chunk, bytes - at);
      const CUresult started = in_chunks ? worker.driver().cuMemcpyDtoHAsync_v2(memory + at, params.getSrc() + at, n, stream)
                                         : copy_slices(worker, shape, params.getSrc(), memory, false, stream);
      worker.services().completion().when_reached(request.header.context, stream, [delivery, at, n, started](CUresult reached) {
        deliver(delivery, at, n, started != CUDA_SUCCESS ? started : reached);
      });
    }
    return Status();
  });
}

}  // namespace fargpu::server

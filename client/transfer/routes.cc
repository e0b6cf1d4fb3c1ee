#include "client/transfer/routes.h"

#include "client/entry/call_target.h"
#include "client/transfer/frame_read.h"
#include "common/copy/limits.h"
#include "generated/client/wire/memory.h"

namespace fargpu::client {

CUresult await_source(Transfer& transfer) {
  if (!transfer.plan.awaits_source) return CUDA_SUCCESS;
  const CUresult result = await_stream(transfer.session, transfer.context, transfer.stream);
  if (result == CUDA_SUCCESS) make_plan(transfer);
  return result;
}

TakenCopy::TakenCopy(const Transfer& transfer) : transfer_(transfer) {
  if (transfer.plan.returns == CopyReturn::kEarlierEnded)
    before_.emplace(transfer.session, transfer.stream);
}

copy::Order TakenCopy::order(const copy::Piece& piece) const {
  const bool is_last = piece.offset + piece.bytes == transfer_.bytes;
  return is_last ? transfer_.plan.order : copy::Order::kStream;
}

CUresult TakenCopy::finish() {
  Session& session = transfer_.session;
  const CopyReturn returns = transfer_.plan.returns;
  if (returns == CopyReturn::kSent) return CUDA_SUCCESS;
  if (returns == CopyReturn::kUnobserved && !session.observers.any(kToldOfReturns) &&
      session.host_calls.period() == transfer_.hold_period)
    return CUDA_SUCCESS;
  if (!before_) return await_stream(session, transfer_.context, transfer_.stream);
  const CUresult result = before_->wait();
  return result == CUDA_SUCCESS ? after_synchronisation(session) : result;
}

namespace {

// The driver takes the bytes of a small frame into the queue of the stream.
uint64_t places_of_frame(uint64_t bytes) {
  if (bytes > copy::kMostPageable) return 1;
  return StreamQueue::places_of(static_cast<uint32_t>(bytes) + StreamQueue::kBytesOfCopy);
}

}  // namespace

CUresult send_in_frame(Transfer& transfer, const copy::Piece& piece, copy::Order order) {
  if (const uint64_t places = places_of_frame(piece.bytes); places > 1) {
    const CUresult taken = take_places(transfer.session, places, transfer.stream);
    if (taken != CUDA_SUCCESS) return taken;
  }
  const copy::Copy copy = transfer.piece(piece, copy::Location::frame(), {}, order);
  const copy::Rows rows = piece.of(transfer.host.rows);
  if (is_dense(piece.shape, rows))
    return send_copy(transfer, copy, reinterpret_cast<const void*>(rows.address), piece.bytes);
  const std::span<std::byte> packed = transfer.packed.of(piece.bytes);
  pack(piece.shape, rows, 0, packed);
  return send_copy(transfer, copy, packed.data(), packed.size());
}

CUresult receive_in_frame(Transfer& transfer, const copy::Piece& piece) {
  const copy::Copy copy =
      transfer.piece(piece, copy::Location::frame(), {copy::Completion::Kind::kReply});
  const copy::Rows rows = piece.of(transfer.host.rows);
  if (is_dense(piece.shape, rows))
    return send_copy_and_wait(transfer, copy, reinterpret_cast<void*>(rows.address), piece.bytes);
  const std::span<std::byte> packed = transfer.packed.of(piece.bytes);
  const CUresult result = send_copy_and_wait(transfer, copy, packed.data(), packed.size());
  if (result == CUDA_SUCCESS) unpack(piece.shape, rows, 0, packed);
  return result;
}

CUresult carry_by_mirror(Transfer& transfer) {
  constexpr unsigned kWork = Submission::kHostMemory | Submission::kQueuePlace;
  const copy::Shape& shape = transfer.shape;
  const copy::Rows& dst = (transfer.to_device ? transfer.device : transfer.host).rows;
  const copy::Rows& src = (transfer.to_device ? transfer.host : transfer.device).rows;
  if (!transfer.work) transfer.work.emplace(transfer.session, transfer.stream);
  CUresult result = transfer.work->result();
  if (result == CUDA_SUCCESS) result = await_source(transfer);
  if (result != CUDA_SUCCESS) return result;
  if (transfer.device.array != nullptr) {
    const copy::Piece all{shape, 0, 0, 0, 0, transfer.bytes};
    result = send_copy(transfer, transfer.piece(all, copy::Location::device(transfer.host.rows)));
  } else if (shape.height == 1 && shape.depth == 1) {
    result = submit(transfer.session, transfer.context, transfer.stream, kWork, [&](uint64_t id) {
      return wire::cuMemcpyDtoDAsync_v2(transfer.session, transfer.context, dst.address,
                                        src.address, shape.width, id);
    });
  } else {
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = src.address;
    copy.srcPitch = src.pitch;
    copy.srcHeight = rows_per_slice(shape, src);
    copy.dstDevice = dst.address;
    copy.dstPitch = dst.pitch;
    copy.dstHeight = rows_per_slice(shape, dst);
    copy.WidthInBytes = shape.width;
    copy.Height = shape.height;
    copy.Depth = shape.depth;
    result = submit(transfer.session, transfer.context, transfer.stream, kWork, [&](uint64_t id) {
      return wire::cuMemcpy3DAsync_v2(transfer.session, transfer.context, &copy, id);
    });
  }
  if (result != CUDA_SUCCESS || !transfer.passed()) return result;
  return await_stream(transfer.session, transfer.context, transfer.stream);
}

CUresult carry_shared(Transfer& transfer) {
  const copy::Piece all{transfer.shape, 0, 0, 0, 0, transfer.bytes};
  const auto host = copy::Location::shared(transfer.host.rows);
  if (const CUresult result = await_source(transfer); result != CUDA_SUCCESS) return result;
  if (!transfer.passed()) return send_copy(transfer, transfer.piece(all, host));
  // When it is over, everything before it in the stream is.
  Synchronisation done(transfer.session, transfer.context, Synchronisation::Of::kStream,
                       transfer.stream);
  if (done.result() != CUDA_SUCCESS) return done.result();
  const CUresult result =
      send_copy_and_wait(transfer, transfer.piece(all, host, {transfer.plan.completion}));
  return result == CUDA_SUCCESS ? done.finish() : result;
}

namespace {

// Two pieces are under way at a time.
CUresult receive_in_frames(Transfer& transfer) {
  const auto limit = [&] { return transfer.session.next_piece_bytes(transfer.bytes); };
  if (transfer.bytes <= limit())
    return receive_in_frame(transfer, {transfer.shape, 0, 0, 0, 0, transfer.bytes});
  FrameRead reads[2];
  size_t turn = 0;
  CUresult result = for_each_piece_up_to(transfer.shape, limit, [&](const copy::Piece& piece) {
    FrameRead& next = reads[turn];
    turn = 1 - turn;
    const bool begun = next.begin(transfer, piece);
    const CUresult before = reads[turn].finish();
    return begun || before != CUDA_SUCCESS ? before : receive_in_frame(transfer, piece);
  });
  for (FrameRead& read : reads) {
    const CUresult last = read.finish();
    if (result == CUDA_SUCCESS) result = last;
  }
  return result;
}

}  // namespace

bool find_amendable(Transfer& transfer) {
  transfer.amendable =
      transfer.session.amendable_copies.add(transfer.host.rows.address, transfer.bytes);
  return transfer.amendable != 0;
}

namespace {

CUresult send_amendable(const Transfer& transfer) {
  Session& session = transfer.session;
  const copy::Piece all{transfer.shape, 0, 0, 0, 0, transfer.bytes};
  const copy::Words words =
      encode(transfer.piece(all, copy::Location::frame(),
                            {transfer.plan.completion, copy::Hold::kNever, transfer.amendable, 0}));
  const CUresult result = submit(
      session, transfer.context, transfer.stream, Submission::kQueuePlace, [&](uint64_t stream) {
        const auto bytes = session.amendable_copies.take(transfer.amendable);
        const CUresult sent = wire::fgCopy(session, transfer.context, words.data(), words.bytes(),
                                           stream, bytes.data(), bytes.size());
        if (sent == CUDA_SUCCESS) session.amendable_copies.sent(transfer.amendable);
        return sent;
      });
  if (result != CUDA_SUCCESS) session.amendable_copies.cancel(transfer.amendable);
  return result;
}

}  // namespace

CUresult carry_in_frames(Transfer& transfer) {
  Session& session = transfer.session;
  if (transfer.plan.completion == copy::Completion::Kind::kAmended) return send_amendable(transfer);
  if (!transfer.to_device) {
    const CUresult result = receive_in_frames(transfer);
    // Everything before it in the stream is complete.
    return result == CUDA_SUCCESS ? after_synchronisation(session) : result;
  }
  if (const CUresult result = await_source(transfer); result != CUDA_SUCCESS) return result;
  TakenCopy taken(transfer);
  const auto limit = [&] { return session.next_piece_bytes(transfer.bytes); };
  const CUresult result = for_each_piece_up_to(
      transfer.shape, limit,
      [&](const copy::Piece& piece) { return send_in_frame(transfer, piece, taken.order(piece)); });
  return result == CUDA_SUCCESS ? taken.finish() : result;
}

// Copies of pinned memory over rdma: the worker's adapter fetches and delivers the bytes itself.
bool find_registered(Transfer& transfer) {
  if (!transfer.means.adapter || transfer.bytes <= copy::kTakenInCall) return false;
  transfer.registered =
      transfer.session.remote_host.find(*transfer.host.region, transfer.host.rows.address);
  return transfer.registered.has_value();
}

namespace {

CUresult to_device(const Transfer& transfer) {
  Session& session = transfer.session;
  const CUresult result =
      for_each_piece(transfer.shape, copy::kMostRemote, [&](const copy::Piece& piece) {
        // In stream order; the worker may read the bytes until the stream has passed the copy.
        return send_copy(transfer, transfer.piece(piece, transfer.registered->at(piece.offset)));
      });
  session.remote_host.sent(*transfer.registered);
  return result;
}

}  // namespace

CUresult carry_by_adapter(Transfer& transfer) {
  Session& session = transfer.session;
  CUresult result = CUDA_SUCCESS;
  if (transfer.to_device) {
    result = await_source(transfer);
    if (result == CUDA_SUCCESS) result = to_device(transfer);
    // A synchronous copy has taken its bytes, and the worker takes them in stream order.
    if (result != CUDA_SUCCESS || !transfer.passed()) return result;
    return await_stream(session, transfer.context, transfer.stream);
  }
  result = for_each_piece(transfer.shape, copy::kMostRemote, [&](const copy::Piece& piece) {
    return send_copy_and_wait(transfer, transfer.piece(piece, transfer.registered->at(piece.offset),
                                                       {transfer.plan.completion}));
  });
  return result == CUDA_SUCCESS ? after_synchronisation(session) : result;
}

}  // namespace fargpu::client

#include "client/transfer/ordered_copy.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <mutex>
#include <thread>

#include "client/entry/call_target.h"
#include "client/hostmem/shared_segment.h"
#include "client/process/process.h"
#include "client/transfer/coherence.h"
#include "client/transfer/routes.h"
#include "common/copy/limits.h"
#include "common/host/thread.h"
#include "common/wire/fixed_message.h"
#include "generated/client/wire/internal.h"
#include "generated/schema/internal.capnp.h"
#include "generated/schema/opcodes.h"

namespace fargpu::client {
namespace {

using transport::Clock;

// An event and a gate.
constexpr uint64_t kPlacesOfBarrier = 2;
// What the worker puts into a stream for a piece that may hold it: a gate and a copy.
constexpr uint64_t kPlacesOfHeldPiece = 2;

OrderedCopies::Memory memory_of(const Transfer& transfer) {
  return transfer.host.region->kind == MemoryKind::kRegistered ? OrderedCopies::Memory::kRegistered
                                                               : OrderedCopies::Memory::kOurs;
}

// Before a copy that may hold its stream: waits as a host function does, and for the places.
CUresult take_hold(Session& session, uint16_t device, uint64_t places, CUstream stream) {
  session.host_calls.hold(device);
  const CUresult result = take_places(session, places, stream);
  if (result != CUDA_SUCCESS) session.host_calls.release(device);
  return result;
}

CUresult send_following(const Transfer& transfer, const copy::Piece& piece,
                        const copy::Location& host, copy::Hold hold, uint64_t id) {
  Session& session = transfer.session;
  session.channel().await_notices();
  const CUresult result = send_copy(
      transfer, transfer.piece(piece, host, {copy::Completion::Kind::kFollow, hold, id, 0}));
  if (result != CUDA_SUCCESS) session.ordered_copies.cancel(id);
  return result;
}

// fgFetched over the bulk channel.
void send_on_bulk_channel(Session& session, uint64_t id, uint64_t offset,
                          std::span<const std::byte> bytes) {
  wire::FixedMessage<schema::FgFetchedParams> message;
  auto params = message.root();
  params.setId(id);
  params.setOffset(offset);
  params.setBytes(bytes.size());
  // A session that is lost ends all copies by itself.
  (void)session.channel().send_beside(schema::op_fgFetched, message.bytes(), bytes);
}

void send_fetched(Session& session, uint64_t id, uint64_t offset,
                  std::span<const std::byte> bytes) {
  // What host functions and device code wrote before the worker asked is seen.
  session.channel().see_sent();
  (void)after_synchronisation(session);
  if (session.channel().has_bulk_connection())
    return send_on_bulk_channel(session, id, offset, bytes);
  const std::byte none{};
  wire::fgFetched(session, 0, id, offset, bytes.empty() ? &none : bytes.data(), bytes.size());
  (void)session.channel().flush();
}

void send_parts(Session& session, const OrderedCopies::Task& task) {
  PackBuffer packed;
  uint64_t bytes = 0;
  for (uint64_t at = 0; at < task.bytes; at += bytes) {
    bytes = std::min(session.piece_bytes(), task.bytes - at);
    const uint64_t offset = task.offset + at;
    bool is_missing = false;
    const auto part = session.ordered_copies.part(task, offset, bytes, packed, &is_missing);
    int none = CUDA_SUCCESS;
    if (is_missing) session.kept.compare_exchange_strong(none, CUDA_ERROR_INVALID_VALUE);
    if (part.empty()) return;
    send_fetched(session, task.id, offset, part);
  }
}

[[noreturn]] void send_copies(Session& session) {
  using Action = OrderedCopies::Task::Action;
  for (;;) {
    const OrderedCopies::Task task = session.ordered_copies.next();
    if (task.action == Action::kSend) {
      send_parts(session, task);
    } else if (task.action == Action::kGiveUp) {
      send_fetched(session, task.id, 0, {});
    } else {
      // What comes behind the copy in its stream sees the bytes.
      const Submission submission(session);
      if (task.action == Action::kAcknowledge) wire::fgDelivered(session, 0, task.id);
      (void)session.channel().flush();
    }
    session.ordered_copies.done(task, session.channel().has_bulk_connection());
  }
}

// Before anything is counted: without the thread, which lives as long as the process, there is no
// copy.
OrderedCopies& copies_of(Session& session) {
  std::call_once(session.copies_are_sent,
                 [&session] { Thread([&session] { send_copies(session); }).detach(); });
  return session.ordered_copies;
}

}  // namespace

CUresult fetch_piece(const Transfer& transfer, const copy::Piece& piece) {
  Session& session = transfer.session;
  OrderedCopies& copies = copies_of(session);
  const uint16_t held_device = device_key(context_of(transfer.stream));
  const uint64_t pieces = count_pieces(piece.shape, copy::kPieceBytes);
  const CUresult taken =
      take_hold(session, held_device, kPlacesOfHeldPiece * pieces, transfer.stream);
  if (taken != CUDA_SUCCESS) return taken;
  const uint64_t id =
      copies.add_fetch(piece.shape, piece.of(transfer.host.rows), held_device, memory_of(transfer));
  return send_following(transfer, piece, copy::Location::frame(), transfer.plan.hold, id);
}

CUresult carry_fetched(Transfer& transfer) {
  return for_each_piece(transfer.shape, copy::kMostFollowing,
                        [&](const copy::Piece& piece) { return fetch_piece(transfer, piece); });
}

namespace {

CUresult deliver_piece(const Transfer& transfer, const copy::Piece& piece, uint16_t held_device) {
  Session& session = transfer.session;
  OrderedCopies& copies = copies_of(session);
  const bool written = transfer.registered.has_value();
  const copy::Hold hold = delivery_hold(transfer.plan, copies.unheld_bytes() + piece.bytes);
  const bool holds = hold != copy::Hold::kNever;
  const bool acknowledge = hold == copy::Hold::kUntilDelivered;
  const uint64_t pieces =
      count_pieces(piece.shape, copy::following_piece_bytes(piece.bytes, written));
  const CUresult taken =
      holds ? take_hold(session, held_device, kPlacesOfHeldPiece * pieces, transfer.stream)
            : take_places(session, pieces, transfer.stream);
  if (taken != CUDA_SUCCESS) return taken;
  const copy::Rows to = piece.of(transfer.host.rows);
  const uint64_t id = copies.add_delivery(piece.shape, to, {holds, held_device, acknowledge},
                                          written, memory_of(transfer));
  // Device code may have got the memory since that was asked.
  const uint64_t span = span_of(piece.shape, to);
  if (!acknowledge && session.pages.touches(to.address, span)) copies.show(to.address, span);
  const copy::Location host =
      written ? transfer.registered->at(piece.offset) : copy::Location::frame();
  return send_following(transfer, piece, host, hold, id);
}

}  // namespace

CUresult carry_delivered(Transfer& transfer) {
  const uint16_t held_device = device_key(context_of(transfer.stream));
  (void)find_registered(transfer);  // if so, the adapter writes the bytes
  const CUresult result = for_each_piece(
      transfer.shape, copy::kMostFollowing,
      [&](const copy::Piece& piece) { return deliver_piece(transfer, piece, held_device); });
  if (transfer.registered) transfer.session.remote_host.sent(*transfer.registered);
  return result;
}

namespace {

// The copies end by notices, which this thread receives when no other thread polls, or by the
// thread that sends fetched bytes.
CUresult wait_until(Session& session, const std::function<bool()>& over) {
  constexpr auto kLookAgain = std::chrono::milliseconds(2);
  while (!over() && !session.channel().lost())
    (void)session.channel().read_until(over, Clock::now() + kLookAgain);
  if (!session.channel().lost()) return CUDA_SUCCESS;
  // With the session all copies end, each when nobody uses its memory any more. A process that
  // exits has no other use for it.
  constexpr auto kLongestEnd = std::chrono::seconds(2);
  const auto until = Clock::now() + kLongestEnd;
  while (!over() && Process::get().state() != ProcessState::kExiting && Clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return from_status(session.channel().why_lost());
}

bool any_amendable(Session& session, const Region& region) {
  return !session.channel().lost() && session.amendable_copies.uses(region.base, region.bytes);
}

}  // namespace

CUresult finish_copies_of(Session& session, const Region& region) {
  const CUresult result = wait_until(session, [&] {
    return !session.ordered_copies.uses(region.base, region.bytes) &&
           !any_amendable(session, region);
  });
  session.amendable_copies.forget(region.base, region.bytes);
  return result;
}

CUresult wait_for_deliveries(Session& session, CUstream stream) {
  if (!session.observers.any(Observers::kCopies)) return CUDA_SUCCESS;
  OrderedCopies& copies = copies_of(session);
  const uint16_t held_device = device_key(context_of(stream));
  if (const CUresult taken = take_hold(session, held_device, kPlacesOfBarrier, stream);
      taken != CUDA_SUCCESS) {
    return taken;
  }
  const uint64_t id = copies.add_barrier(held_device);
  session.channel().await_notices();
  const uint16_t context = stream_context_id(stream);
  const CUresult result = submit(
      session, context, stream, Submission::kQueuePlace,
      [&](uint64_t stream_id) { return wire::fgMeetDeliveries(session, context, id, stream_id); });
  if (result != CUDA_SUCCESS) session.ordered_copies.cancel(id);
  return result;
}

}  // namespace fargpu::client

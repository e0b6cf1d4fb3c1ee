#include "client/transfer/ordered_copy.h"

#include <algorithm>
#include <chrono>
#include <functional>

#include "client/copy/pieces.h"
#include "client/entry/here.h"
#include "client/memory/shared_segment.h"
#include "client/transfer/coherence.h"
#include "client/transfer/exposure.h"
#include "client/transfer/remote_copy.h"
#include "generated/schema/opcodes.h"

namespace fargpu::client {
namespace {

using transport::Clock;

// What one call takes (schema/api/internal.yml).
constexpr uint64_t kMostBytes = 64u << 20;
// Deliveries of up to so many bytes in all never wait for staging memory of the worker.
constexpr uint64_t kMostUnheldBytes = 32u << 20;
// The worker puts a copy, and perhaps a gate, into the stream for so many bytes; for fewer where
// the adapter writes them to the client.
constexpr uint64_t kBytesOfPiece = 4u << 20, kBytesOfWrittenPiece = 1u << 20, kMostPieces = 17;
// An event and a gate.
constexpr uint64_t kPlacesOfMeeting = 2;
// fgDeliver's `hold`.
constexpr int kNever = 0, kForStaging = 1, kUntilDelivered = 2;

uint64_t bytes_of(const Box& box) { return uint64_t{box.width} * box.height * box.depth; }

// Streams wait for words of the worker.
bool has_gates(Session& session) {
  return !session.snapshot.unavailable.contains(schema::op_cuStreamWaitValue32_v2);
}

// The region that all of the host side lies in.
std::optional<Region> region_of(Session& session, const Side& host, const Box& box) {
  if (session.host_memory.empty()) return std::nullopt;
  const auto region = session.find_host(host.address);
  if (!region || span_of(box, host) > region->base + region->bytes - host.address)
    return std::nullopt;
  return region;
}

// The generated call takes one place in the driver's queue, the others are taken here.
CUresult take_places(Session& session, uint64_t places, CUstream stream) {
  for (uint64_t i = 1; i < places; ++i) {
    const Submission place(session, current_context_id(), stream, Submission::kQueuePlace);
    if (place.result() != CUDA_SUCCESS) return place.result();
  }
  return CUDA_SUCCESS;
}

// Before a copy that may hold its stream: waits as a host function does, and for the places.
CUresult take_hold(Session& session, uint16_t device, uint64_t places, CUstream stream) {
  session.host_calls.hold(device);
  const CUresult result = take_places(session, places, stream);
  if (result != CUDA_SUCCESS) session.host_calls.release(device);
  return result;
}

}  // namespace

OrderedCopies::Wire wire_of_ordered_copies(Session& session) {
  return {[&session](uint64_t id, uint64_t offset, std::span<const std::byte> bytes) {
            // What host functions and device code wrote before the worker asked is seen.
            session.channel().see_sent();
            (void)after_synchronisation(session);
            const std::byte none{};
            call_fgFetched(session, 0, id, offset, bytes.empty() ? &none : bytes.data(),
                           bytes.size());
            (void)session.channel().flush();
          },
          [&session](uint64_t id) {
            // What comes behind the copy in its stream sees the bytes.
            const Submission submission(session);
            call_fgDelivered(session, 0, id);
            (void)session.channel().flush();
          },
          [&session] {
            const Submission submission(session);
            (void)session.channel().flush();
          },
          [&session](uint16_t device) { session.host_calls.release(device); }};
}

bool is_delivered(Session& session, const Side& host, const Box& box) {
  return region_of(session, host, box).has_value() && has_gates(session);
}

CUresult deliver_to_host(Session& session, const Side& dst, const Side& src, const Box& box,
                         CUstream stream) {
  // The stream waits for the bytes in two cases: the GPU writes memory of the application directly,
  // so a program could see there that the stream has passed the copy; or device code reads the
  // memory, so work behind the copy must find the bytes.
  const uint16_t held_device = device_key(context_of(stream));
  const bool acknowledge =
      SharedSegment::possible(session) || session.pages.touches(dst.address, span_of(box, dst));
  const auto place = remote_place(session, dst, box);
  const CUresult result = for_each_piece(
      box, src, dst, kMostBytes,
      [&](const Box& piece, const Side& from, const Side& to) -> CUresult {
        const uint64_t bytes = bytes_of(piece);
        const bool holds =
            acknowledge || session.ordered_copies.unheld_bytes() + bytes > kMostUnheldBytes;
        const uint64_t pieces = bytes / (place ? kBytesOfWrittenPiece : kBytesOfPiece) + 1;
        if (const CUresult taken =
                holds ? take_hold(session, held_device, 2 * std::min(pieces, kMostPieces), stream)
                      : take_places(session, std::min(pieces, kMostPieces), stream);
            taken != CUDA_SUCCESS) {
          return taken;
        }
        const uint64_t id = session.ordered_copies.add_delivery(
            piece, to, {holds, held_device, acknowledge}, place.has_value());
        // Device code may have got the memory since that was asked.
        if (!acknowledge && session.pages.touches(to.address, span_of(piece, to)))
          session.ordered_copies.show(to.address, span_of(piece, to));
        session.channel().await_notices();
        const transport::RemoteKey key = place ? place->key : transport::RemoteKey{};
        const CUresult ordered = call_fgDeliver(
            session, current_context_id(), id, from.address, from.pitch, from.slice, piece.width,
            piece.height, piece.depth, stream,
            acknowledge ? kUntilDelivered : (holds ? kForStaging : kNever), key.address, key.bytes,
            key.key, place ? place->offset + (to.address - dst.address) : 0);
        if (ordered != CUDA_SUCCESS) session.ordered_copies.cancel(id);
        return ordered;
      });
  if (place) session.remote_host.sent(*place);
  return result;
}

bool may_be_written_later(Session& session, const Region& region, uint64_t address,
                          uint64_t bytes) {
  return region.shared_at != 0 || session.pages.any() || session.shared_host.any() ||
         session.host_calls.functions() ||
         session.memory_waits.load(std::memory_order_acquire) != 0 ||
         session.ordered_copies.writes(address, bytes);
}

bool is_fetchable(Session& session, const Side& host, const Box& box) {
  return region_of(session, host, box).has_value() && has_gates(session);
}

bool is_fetched(Session& session, const Side& host, const Box& box) {
  const auto region = region_of(session, host, box);
  return region && has_gates(session) &&
         may_be_written_later(session, *region, host.address, span_of(box, host));
}

CUresult fetch_to_device(Session& session, const Side& dst, const Side& src, const Box& box,
                         CUstream stream) {
  const uint16_t held_device = device_key(context_of(stream));
  return for_each_piece(
      box, dst, src, kMostBytes,
      [&](const Box& piece, const Side& to, const Side& from) -> CUresult {
        const uint64_t pieces = bytes_of(piece) / kBytesOfPiece + 1;
        if (const CUresult taken = take_hold(session, held_device, 2 * pieces, stream);
            taken != CUDA_SUCCESS) {
          return taken;
        }
        const uint64_t id = session.ordered_copies.add_fetch(piece, from, held_device);
        session.channel().await_notices();
        const CUresult result =
            call_fgFetch(session, current_context_id(), id, to.address, to.pitch, to.slice,
                         piece.width, piece.height, piece.depth, stream);
        if (result != CUDA_SUCCESS) session.ordered_copies.cancel(id);
        return result;
      });
}

namespace {

// The copies end by notices, which this thread receives when no other thread polls, or by the
// thread that sends fetched bytes.
CUresult wait_until(Session& session, const std::function<bool()>& over) {
  constexpr auto kLookAgain = std::chrono::milliseconds(2);
  while (!over() && !session.channel().lost())
    (void)session.channel().read_until(over, Clock::now() + kLookAgain);
  // With the session all copies are over.
  return session.channel().lost() ? from_status(session.channel().why_lost()) : CUDA_SUCCESS;
}

}  // namespace

CUresult finish_copies_of(Session& session, const Region& region) {
  return wait_until(session,
                    [&] { return !session.ordered_copies.uses(region.base, region.bytes); });
}

CUresult meet_deliveries(Session& session, CUstream stream) {
  const uint16_t held_device = device_key(context_of(stream));
  if (const CUresult taken = take_hold(session, held_device, kPlacesOfMeeting, stream);
      taken != CUDA_SUCCESS) {
    return taken;
  }
  const uint64_t id = session.ordered_copies.add_meeting(held_device);
  session.channel().await_notices();
  const CUresult result = call_fgMeetDeliveries(session, current_context_id(), id, stream);
  if (result != CUDA_SUCCESS) session.ordered_copies.cancel(id);
  return result;
}

}  // namespace fargpu::client

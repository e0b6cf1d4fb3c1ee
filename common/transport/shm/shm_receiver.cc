#include "common/transport/shm/shm_receiver.h"

#include <fmt/core.h>

#include <algorithm>

#include "common/base/address_check.h"

namespace fargpu::transport {
namespace {

// Bulk is copied in pieces of this size, so that the sender can fill the space of one while the
// next is being copied.
constexpr size_t kPieceBytes = 128 << 10;

}  // namespace

ShmReceiver::ShmReceiver(RingMemory memory, ShmSocket& socket, const wire::FrameLimits& limits)
    : ring_(memory),
      socket_(socket),
      limits_(limits),
      body_(std::make_unique_for_overwrite<uint64_t[]>(limits.max_body_bytes / sizeof(uint64_t) +
                                                       1)) {}

Result<size_t> ShmReceiver::deliver(FrameHandler& handler) {
  if (!ring_.refresh()) {
    return Status(StatusCode::kProtocol,
                  "the peer wrote an impossible position into the shared memory");
  }
  size_t delivered = 0;
  while (ring_.available() > 0) {
    FARGPU_ASSIGN_OR_RETURN(const bool whole, step(handler));
    if (whole) ++delivered;
  }
  publish();
  return delivered;
}

void ShmReceiver::publish() {
  if (ring_.publish()) socket_.ring_producer();
}

bool ShmReceiver::fill(std::span<std::byte> room, size_t& done) {
  const size_t piece_bytes = std::min<size_t>(kPieceBytes, ring_.capacity() / 8);
  while (done < room.size() && ring_.available() > 0) {
    const size_t piece = std::min({room.size() - done, ring_.available(), piece_bytes});
    ring_.read(room.subspan(done, piece));
    done += piece;
    bytes.add(piece);
    if (ring_.unpublished() >= piece_bytes) publish();
  }
  return done == room.size();
}

Status ShmReceiver::begin_bulk(FrameHandler& handler) {
  FARGPU_ASSIGN_OR_RETURN(bulk_, handler.bulk_buffer(header_, body()));
  if (bulk_.size() != header_.bulk_bytes) {
    return Status(StatusCode::kProtocol,
                  fmt::format("no room for the {} bytes of bulk data of opcode {}",
                              header_.bulk_bytes, header_.opcode));
  }
  has_bulk_room_ = true;
  return Status();
}

Result<bool> ShmReceiver::step(FrameHandler& handler) {
  if (!fill(std::as_writable_bytes(std::span(&header_, 1)), header_bytes_)) return false;
  if (!checked_) {
    FARGPU_RETURN_IF_ERROR(wire::check_header(header_, limits_));
    checked_ = true;
  }
  if (!fill(body(), body_bytes_)) return false;
  if (header_.bulk_bytes > 0) {
    if (!has_bulk_room_) FARGPU_RETURN_IF_ERROR(begin_bulk(handler));
    if (!fill(bulk_, bulk_bytes_)) return false;
  }
  const std::span<std::byte> bulk = std::exchange(bulk_, {});
  header_bytes_ = body_bytes_ = bulk_bytes_ = 0;
  checked_ = has_bulk_room_ = false;
  frames.add(1);
  const address_check::OnlyPart only_body(
      body(), std::as_bytes(std::span(body_.get(), limits_.max_body_bytes / sizeof(uint64_t) + 1)));
  FARGPU_RETURN_IF_ERROR(handler.on_frame(header_, body(), bulk));
  return true;
}

}  // namespace fargpu::transport

#include "common/transport/shm/shm_sender.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "common/transport/commit_check.h"
#include "common/transport/poll.h"
#include "common/transport/room_waits.h"
#include "common/transport/spin.h"

namespace fargpu::transport {
namespace {

// A sleeping peer is rung after this much without a flush.
constexpr size_t kRingAfterBytes = 32 << 10;
// Of bulk: pieces are published one by one, so that the peer copies out while we copy in.
constexpr size_t kPieceBytes = 128 << 10;

Status broken_peer() {
  return Status(StatusCode::kProtocol,
                "the peer wrote an impossible position into the shared memory");
}

}  // namespace

ShmSender::ShmSender(RingMemory memory, ShmSocket& socket, size_t max_slot_bytes,
                     Clock::duration stall_timeout, std::chrono::microseconds spin)
    : ring_(memory),
      socket_(socket),
      stall_timeout_(stall_timeout),
      spin_(spin),
      max_slot_bytes_(max_slot_bytes),
      slot_(std::make_unique_for_overwrite<uint64_t[]>(max_slot_bytes / sizeof(uint64_t) + 1)) {}

Result<std::span<std::byte>> ShmSender::reserve(size_t bytes, Deadline deadline) {
  if (bytes > max_slot_bytes_) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("a frame of {} bytes is larger than the peer's limit of {}", bytes,
                              max_slot_bytes_));
  }
  // Waits here, so that commit() need not wait for header and body. A frame larger than the ring
  // waits in commit().
  const size_t needed = std::min(bytes, ring_.capacity());
  if (ring_.free() < needed) FARGPU_RETURN_IF_ERROR(wait_for_room(needed, deadline));
  slot_bytes_ = bytes;
  return std::as_writable_bytes(std::span(slot_.get(), max_slot_bytes_ / sizeof(uint64_t) + 1))
      .first(bytes);
}

Status ShmSender::commit(size_t bytes, std::span<const Bytes> bulk, Deadline deadline) {
  const Bytes slot = std::as_bytes(std::span(slot_.get(), max_slot_bytes_ / sizeof(uint64_t) + 1));
  FARGPU_RETURN_IF_ERROR(check_commit(slot.first(slot_bytes_), bytes, bulk).status());
  slot_bytes_ = 0;
  frames.add(1);
  if (bulk.empty() && bytes <= ring_.free()) [[likely]] {
    note_written(ring_.write(slot.first(bytes)));
  } else {
    FARGPU_RETURN_IF_ERROR(write(slot.first(bytes), deadline));
    for (const Bytes& piece : bulk) FARGPU_RETURN_IF_ERROR(write(piece, deadline));
  }
  ring_.publish();
  if (unrung_bytes_ >= kRingAfterBytes) flush();
  return Status();
}

bool ShmSender::try_post(const wire::FrameHeader& header, Bytes body) {
  const size_t bytes = sizeof header + body.size();
  if (bytes > ring_.free() || bytes > max_slot_bytes_ || header.body_bytes != body.size() ||
      header.bulk_bytes != 0)
    return false;
  slot_bytes_ = 0;
  frames.add(1);
  ring_.write(header, body);
  note_written(bytes);
  ring_.publish();
  if (unrung_bytes_ >= kRingAfterBytes) flush();
  return true;
}

Status ShmSender::write(Bytes data, Deadline deadline) {
  const size_t piece_bytes = std::min(kPieceBytes, ring_.capacity() / 8);
  while (!data.empty()) {
    const size_t written = ring_.write(data.first(std::min(data.size(), piece_bytes)));
    data = data.subspan(written);
    note_written(written);
    if (written == 0) {
      // A quarter of the ring, so that the ends do not wake each other for every piece.
      const size_t room = std::min(data.size(), ring_.capacity() / 4);
      Status status = wait_for_room(room, deadline);
      if (status.code() == StatusCode::kTimeout) {
        return Status(StatusCode::kLost, "the deadline passed in the middle of a frame");
      }
      FARGPU_RETURN_IF_ERROR(status);
    } else if (!data.empty()) {
      ring_.publish();
      if (unrung_bytes_ >= kRingAfterBytes) flush();
    }
  }
  return Status();
}

Status ShmSender::wait_for_room(size_t room, Deadline deadline) {
  if (!ring_.refresh()) return broken_peer();
  if (ring_.free() >= room) return Status();
  ++room_waits;
  // The peer may sleep although we have published: it has not been rung yet.
  ring_.publish();
  flush();

  Deadline stalled = deadline_after(stall_timeout_);
  size_t free_before = ring_.free();
  for (Spin spin(spin_, deadline); spin.go_on();) {
    if (!ring_.refresh()) return broken_peer();
    if (ring_.free() >= room) return Status();
  }
  for (;;) {
    ring_.announce_wait(room);
    if (!ring_.refresh()) return broken_peer();
    if (ring_.free() >= room) {
      ring_.end_wait();
      return Status();
    }
    pollfd descriptors[2] = {{socket_.session(), POLLRDHUP, 0}, {socket_.room(), POLLIN, 0}};
    socket_.send_calls.add(1);
    auto ready = poll_until(descriptors, std::min(deadline, stalled));
    ring_.end_wait();
    FARGPU_RETURN_IF_ERROR(ready.status());
    if (descriptors[0].revents != 0) {
      return Status(StatusCode::kLost, "the peer closed the connection");
    }
    if (descriptors[1].revents != 0 && !socket_.drain_room_bells()) {
      return Status(StatusCode::kLost, "the peer closed the socket for room bells");
    }
    if (!ring_.refresh()) return broken_peer();
    if (ring_.free() >= room) return Status();
    const bool progress = ring_.free() != std::exchange(free_before, ring_.free());
    if (progress) stalled = deadline_after(stall_timeout_);
    // A peer may ring as often as it likes: the deadline stays the same.
    if (Clock::now() < std::min(deadline, stalled)) continue;
    if (deadline <= stalled) return peer_is_busy();
    return Status(
        StatusCode::kLost,
        fmt::format("connection lost: the peer took no data for {} s",
                    std::chrono::duration_cast<std::chrono::seconds>(stall_timeout_).count()));
  }
}

Status ShmSender::send_descriptor(uint64_t number, int descriptor) {
  if (descriptors_sent_ - ring_.descriptors_taken() >= DescriptorPassing::kMaxWaiting) {
    return Status(StatusCode::kNoCapacity, fmt::format("{} descriptors wait for the peer already",
                                                       DescriptorPassing::kMaxWaiting));
  }
  FARGPU_RETURN_IF_ERROR(socket_.send_descriptor(number, descriptor));
  ++descriptors_sent_;
  return Status();
}

}  // namespace fargpu::transport

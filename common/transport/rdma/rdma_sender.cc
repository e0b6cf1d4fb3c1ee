#include "common/transport/rdma/rdma_sender.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "common/transport/commit_check.h"
#include "common/transport/poll.h"
#include "common/transport/room_waits.h"

namespace fargpu::transport {
namespace {

constexpr size_t kInPlaceBytes = 32 << 10;  // smaller pieces are copied even from registered
                                            // memory: sending in place waits for the adapter
constexpr size_t kEagerBytes = 64 << 10;    // this much pending leaves without a flush
constexpr size_t kMaxMessageBytes = 256 << 10;
// more is worth waiting for when the ring is nearly full
constexpr size_t kMinMessageBytes = 16 << 10;

}  // namespace

RdmaSender::RdmaSender(RdmaLink& link, RdmaRegions& regions, std::unique_ptr<RdmaBuffer> staging,
                       size_t max_slot_bytes, Clock::duration stall_timeout)
    : link_(link),
      regions_(regions),
      staging_(std::move(staging)),
      max_slot_bytes_(max_slot_bytes),
      stall_timeout_(stall_timeout) {
  message_.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
}

// --- staging ---

void RdmaSender::release() {
  const uint64_t completed = link_.completed();
  while (first_in_flight_ != last_in_flight_ &&
         in_flight_[first_in_flight_ % kRdmaSendDepth].request <= completed) {
    begin_ = in_flight_[first_in_flight_++ % kRdmaSendDepth].staging_end;
  }
}

void RdmaSender::append_pending(uint64_t begin, size_t bytes) {
  if (bytes == 0) return;
  pending_bytes_ += bytes;
  if (pending_end_ > pending_begin_) {
    Piece& last = pending_[pending_end_ - 1];
    if (last.begin + last.bytes == begin && staging_->offset(begin) != 0) {
      last.bytes += bytes;
      return;
    }
  }
  pending_[pending_end_++] = Piece{begin, bytes};
}

// --- messages ---

size_t RdmaSender::message_room(size_t wanted) const {
  const RdmaRing& ring = link_.peer_ring();
  const size_t credit = link_.room_in_ring();
  if (credit < std::min({wanted, kMinMessageBytes, static_cast<size_t>(ring.bytes / 8)})) return 0;
  // A message ends at the end of the ring. It is also small enough that the peer returns credit
  // while others are under way.
  const size_t to_the_end = ring.bytes - ring.offset(link_.sent_bytes());
  return std::min({credit, to_the_end, kMaxMessageBytes, static_cast<size_t>(ring.bytes / 8)});
}

Result<uint64_t> RdmaSender::post_message(std::span<ibv_sge> pieces, size_t bytes, bool signal) {
  const RdmaRing& ring = link_.peer_ring();
  message_.sg_list = pieces.data();
  message_.num_sge = static_cast<int>(pieces.size());
  message_.send_flags = bytes <= link_.max_inline() ? IBV_SEND_INLINE : 0;
  message_.wr.rdma.remote_addr = ring.address + ring.offset(link_.sent_bytes());
  message_.wr.rdma.rkey = ring.key;
  return link_.post_message(message_, bytes, signal);
}

Result<bool> RdmaSender::post_pending() {
  while (pending_bytes_ > 0) {
    if (last_in_flight_ - first_in_flight_ == kRdmaSendDepth) release();
    const size_t room = message_room(pending_bytes_);
    if (room == 0 || last_in_flight_ - first_in_flight_ == kRdmaSendDepth) return false;
    ibv_sge pieces[8];
    unsigned count = 0;
    size_t bytes_here = 0, next = pending_begin_, rest_of_last = 0;
    while (next < pending_end_ && count < link_.max_sge() && bytes_here < room) {
      const Piece& piece = pending_[next];
      const size_t take = std::min(piece.bytes, room - bytes_here);
      pieces[count++] = ibv_sge{reinterpret_cast<uintptr_t>(place(piece.begin)),
                                static_cast<uint32_t>(take), staging_->region().local_key()};
      bytes_here += take;
      rest_of_last = piece.bytes - take;
      ++next;
    }
    const Piece& last = pending_[next - 1];
    const uint64_t staging_end = last.begin + last.bytes - rest_of_last;
    const bool signal = unsignalled_bytes_ + bytes_here >= staging_->size() / 8;
    FARGPU_ASSIGN_OR_RETURN(const uint64_t number,
                            post_message(std::span(pieces, count), bytes_here, signal));
    if (number == 0) return false;
    unsignalled_bytes_ = signal ? 0 : unsignalled_bytes_ + bytes_here;
    in_flight_[last_in_flight_++ % kRdmaSendDepth] = InFlight{number, staging_end};
    bytes.add(bytes_here);
    pending_bytes_ -= bytes_here;
    pending_begin_ = next;
    if (rest_of_last > 0) {
      --pending_begin_;
      pending_[pending_begin_] = Piece{staging_end, rest_of_last};
    }
  }
  pending_begin_ = pending_end_ = 0;
  return true;
}

template <typename Ready>
Status RdmaSender::wait(Deadline deadline, Ready ready) {
  if (!ready()) ++room_waits;
  const Deadline stalled = deadline_after(stall_timeout_);
  Status status = link_.wait(RdmaLink::Role::kSender, std::min(deadline, stalled), ready);
  if (status.ok() || status.code() != StatusCode::kTimeout || deadline <= stalled) return status;
  return Status(
      StatusCode::kLost,
      fmt::format("connection lost: the peer took no data for {} s",
                  std::chrono::duration_cast<std::chrono::seconds>(stall_timeout_).count()));
}

Status RdmaSender::wait_to_post(uint64_t completed, size_t wanted, Deadline deadline) {
  return wait(deadline, [&] {
    return link_.completed() != completed || (wanted > 0 && message_room(wanted) > 0);
  });
}

Status RdmaSender::wait_for_staging(size_t bytes, Deadline deadline) {
  for (;;) {
    const uint64_t completed = link_.completed();  // before anything that depends on it
    release();
    if (pending_end_ < kMaxPending && fits(contiguous(bytes), bytes)) return Status();
    FARGPU_ASSIGN_OR_RETURN(const bool all, post_pending());
    if (pending_end_ < kMaxPending && fits(contiguous(bytes), bytes)) return Status();
    FARGPU_RETURN_IF_ERROR(wait_to_post(completed, all ? 0 : pending_bytes_, deadline));
  }
}

// --- frames ---

Result<std::span<std::byte>> RdmaSender::reserve(size_t bytes, Deadline deadline) {
  if (bytes > max_slot_bytes_) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("a frame of {} bytes is larger than the peer's limit of {}", bytes,
                              max_slot_bytes_));
  }
  slot_bytes_ = 0;
  slot_in_scratch_ = bytes > staging_->size() / 4;
  if (slot_in_scratch_) return reserve_scratch(bytes, deadline);
  slot_ = contiguous(bytes);
  if (pending_end_ == kMaxPending || !fits(slot_, bytes)) {
    FARGPU_RETURN_IF_ERROR(wait_for_staging(bytes, deadline));
    slot_ = contiguous(bytes);
  }
  slot_bytes_ = bytes;
  return std::span(place(slot_), bytes);
}

// The frame is copied like bulk. Room for its beginning is enough: the peer takes data.
Result<std::span<std::byte>> RdmaSender::reserve_scratch(size_t bytes, Deadline deadline) {
  FARGPU_RETURN_IF_ERROR(wait_for_staging(staging_->size() / 4, deadline));
  if (!scratch_) scratch_ = std::make_unique_for_overwrite<std::byte[]>(max_slot_bytes_);
  slot_bytes_ = bytes;
  return std::span(scratch_.get(), bytes);
}

Status RdmaSender::commit(size_t frame_bytes, std::span<const Bytes> bulk, Deadline deadline) {
  const std::byte* slot = slot_in_scratch_ ? scratch_.get() : place(slot_);
  FARGPU_RETURN_IF_ERROR(check_commit(Bytes(slot, slot_bytes_), frame_bytes, bulk).status());
  slot_bytes_ = 0;
  frames.add(1);
  if (slot_in_scratch_) {
    FARGPU_RETURN_IF_ERROR(copy(Bytes(scratch_.get(), frame_bytes), deadline));
  } else {
    append_pending(slot_, frame_bytes);
    end_ = slot_ + frame_bytes;
  }
  if (!bulk.empty()) FARGPU_RETURN_IF_ERROR(send_bulk(bulk, deadline));
  if (pending_bytes_ < kEagerBytes) return Status();
  return post_pending().status();
}

Status RdmaSender::send_bulk(std::span<const Bytes> bulk, Deadline deadline) {
  for (const Bytes& piece : bulk) {
    if (piece.empty()) continue;
    if (piece.size() >= kInPlaceBytes) {
      if (const auto region = regions_.find(piece)) {
        FARGPU_RETURN_IF_ERROR(send_in_place(piece, *region, deadline));
        continue;
      }
    }
    FARGPU_RETURN_IF_ERROR(copy(piece, deadline));
  }
  return Status();
}

// Appended to what is pending: as much as there is room for, then more as room comes.
Status RdmaSender::copy(Bytes data, Deadline deadline) {
  const size_t chunk = std::min(kEagerBytes, staging_->size() / 8);
  while (!data.empty()) {
    // The stream has no gaps, so it need not be aligned: as much as fits where the last piece
    // ended.
    release();
    const size_t to_the_end = staging_->size() - staging_->offset(end_);
    const size_t free = staging_->size() - static_cast<size_t>(end_ - begin_);
    const size_t take = std::min({data.size(), to_the_end, free, chunk});
    if (take == 0 || pending_end_ == kMaxPending) {
      FARGPU_RETURN_IF_ERROR(wait_for_staging(std::min(data.size(), chunk), deadline));
      continue;
    }
    std::memcpy(place(end_), data.data(), take);
    append_pending(end_, take);
    end_ += take;
    data = data.subspan(take);
    if (pending_bytes_ >= chunk) FARGPU_RETURN_IF_ERROR(post_pending().status());
  }
  return Status();
}

Status RdmaSender::send_in_place(Bytes data, const RdmaRegion& region, Deadline deadline) {
  FARGPU_RETURN_IF_ERROR(flush(deadline));
  uint64_t last = 0;
  while (!data.empty()) {
    const uint64_t completed = link_.completed();
    const size_t take = std::min(message_room(data.size()), data.size());
    if (take > 0) {
      ibv_sge piece{reinterpret_cast<uintptr_t>(data.data()), static_cast<uint32_t>(take),
                    region.local_key()};
      FARGPU_ASSIGN_OR_RETURN(const uint64_t number,
                              post_message(std::span(&piece, 1), take, take == data.size()));
      if (number != 0) {
        bytes.add(take);
        last = number;
        data = data.subspan(take);
        continue;
      }
    }
    FARGPU_RETURN_IF_ERROR(wait_to_post(completed, data.size(), deadline));
  }
  // The caller's memory is being read until then.
  return wait(deadline, [&] { return link_.completed() >= last; });
}

Status RdmaSender::flush(Deadline deadline) {
  for (;;) {
    const uint64_t completed = link_.completed();
    FARGPU_ASSIGN_OR_RETURN(const bool all, post_pending());
    if (all) return Status();
    FARGPU_RETURN_IF_ERROR(wait_to_post(completed, pending_bytes_, deadline));
  }
}

}  // namespace fargpu::transport

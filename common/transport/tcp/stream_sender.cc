#include "common/transport/tcp/stream_sender.h"

#include <fmt/core.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/transport/commit_check.h"
#include "common/transport/poll.h"
#include "common/transport/room_waits.h"
#include "common/transport/tcp/socket_calls.h"

namespace fargpu::transport {
namespace {

constexpr size_t kBufferBytes = 256 << 10;
// Smaller bulk is copied behind its frame: one large write is cheaper than many that gather small
// pieces.
constexpr size_t kCopiedBulkBytes = 8 << 10;

}  // namespace

StreamSender::StreamSender(std::vector<int> descriptors, size_t max_slot_bytes,
                           Clock::duration stall_timeout)
    : descriptors_(std::move(descriptors)),
      capacity_(std::max(wire::whole_words(max_slot_bytes), kBufferBytes)),
      stall_timeout_(stall_timeout) {
  for (Pending& pending : both_)
    pending.buffer = std::make_unique_for_overwrite<std::byte[]>(capacity_);
}

Result<std::span<std::byte>> StreamSender::reserve(size_t bytes, Deadline deadline) {
  if (bytes > capacity_) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("a frame of {} bytes is larger than {}", bytes, capacity_));
  }
  if (capacity_ - pending_->used < bytes || pending_->end == Pending::kMost) {
    FARGPU_RETURN_IF_ERROR(flush(deadline));
  }
  slot_bytes_ = bytes;
  return std::span(pending_->buffer.get() + pending_->used, bytes);
}

void StreamSender::Pending::append(size_t offset, size_t bytes) {
  std::byte* start = buffer.get() + offset;
  if (!empty()) {
    iovec& last = pieces[end - 1];
    if (static_cast<std::byte*>(last.iov_base) + last.iov_len == start) {
      last.iov_len += bytes;
      return;
    }
  }
  pieces[end++] = iovec{start, bytes};
}

Status StreamSender::commit(size_t bytes, std::span<const Bytes> bulk, Deadline deadline) {
  FARGPU_ASSIGN_OR_RETURN(
      const uint64_t bulk_bytes,
      check_commit(Bytes(pending_->buffer.get() + pending_->used, slot_bytes_), bytes, bulk));
  slot_bytes_ = 0;
  frames.add(1);

  size_t& used = pending_->used;
  const bool copied = bulk_bytes <= kCopiedBulkBytes && capacity_ - used - bytes >= bulk_bytes;
  pending_->append(used, bytes + (copied ? bulk_bytes : 0));
  used += bytes;
  if (!copied) return write_out(bulk, bulk_bytes, deadline);
  for (const Bytes& piece : bulk) {
    if (!piece.empty()) std::memcpy(pending_->buffer.get() + used, piece.data(), piece.size());
    used += piece.size();
  }
  used = std::min(wire::whole_words(used), capacity_);
  return Status();
}

bool StreamSender::try_post(const wire::FrameHeader& header, Bytes body) {
  const size_t frame_bytes = sizeof header + body.size();
  size_t& used = pending_->used;
  if (capacity_ - used < frame_bytes || pending_->end == Pending::kMost ||
      header.body_bytes != body.size() || header.bulk_bytes != 0)
    return false;
  slot_bytes_ = 0;
  frames.add(1);
  std::byte* const place = pending_->buffer.get() + used;
  std::memcpy(place, &header, sizeof header);
  if (!body.empty()) std::memcpy(place + sizeof header, body.data(), body.size());
  pending_->append(used, frame_bytes);
  used = std::min(used + wire::whole_words(frame_bytes), capacity_);
  return true;
}

bool StreamSender::set_aside() {
  const std::unique_lock lock(socket_mutex_, std::try_to_lock);
  if (!lock.owns_lock() || !aside_->empty()) return false;
  std::swap(pending_, aside_);
  slot_bytes_ = 0;
  return true;
}

Status StreamSender::send_aside() {
  const std::unique_lock lock(socket_mutex_, std::try_to_lock);
  // Its holder sends deferred frames first, but may stop before all are sent.
  if (!lock.owns_lock()) return peer_is_busy();
  FARGPU_ASSIGN_OR_RETURN(const bool all, write_small(nullptr));
  return all ? Status() : peer_is_busy();
}

Status StreamSender::flush(Deadline deadline) {
  {
    const std::lock_guard lock(socket_mutex_);
    FARGPU_ASSIGN_OR_RETURN(const bool all, write_small(pending_));
    if (all) return Status();
  }
  return write_out({}, 0, deadline);
}

Result<bool> StreamSender::write_small(Pending* pending) {
  ShareCursor none;
  while (!aside_->empty() || (pending != nullptr && !pending->empty())) {
    FARGPU_ASSIGN_OR_RETURN(const bool taken, write_some(0, pending, none));
    if (!taken) return false;
  }
  return true;
}

void StreamSender::Pending::consume(size_t& bytes) {
  while (bytes > 0 && !empty()) {
    iovec& first = pieces[begin];
    const size_t take = std::min(bytes, first.iov_len);
    first.iov_base = static_cast<std::byte*>(first.iov_base) + take;
    first.iov_len -= take;
    bytes -= take;
    if (first.iov_len == 0) ++begin;
  }
  if (empty()) clear();
}

Result<bool> StreamSender::write_some(size_t index, Pending* pending, ShareCursor& share) {
  iovec pieces[kMaxPieces];
  size_t count = 0;
  for (const Pending* first : {aside_, pending}) {
    if (index != 0 || first == nullptr) continue;
    for (size_t i = first->begin; i < first->end; ++i) pieces[count++] = first->pieces[i];
  }
  count += share.gather(pieces + count, kMaxPieces - count);
  msghdr message{};
  message.msg_iov = pieces;
  message.msg_iovlen = count;
  for (;;) {
    const int flags = MSG_DONTWAIT | MSG_NOSIGNAL;
    // Not asked for descriptors::own(), a system call: where the program has closed the number and
    // opened a file by it, send() refuses what is no socket.
    const int socket = descriptors_[index];
    const ssize_t sent = count == 1
                             ? send_at_once(socket, pieces[0].iov_base, pieces[0].iov_len, flags)
                             : ::sendmsg(socket, &message, flags);
    system_calls.add(1);
    if (sent >= 0) {
      auto left = static_cast<size_t>(sent);
      bytes.add(left);
      if (index == 0) aside_->consume(left);
      if (index == 0 && pending != nullptr) pending->consume(left);
      share.consume(left);
      return true;
    }
    if (errno == EAGAIN) return false;
    if (errno != EINTR) {
      return Status(StatusCode::kLost,
                    system_error("connection lost while sending", errno).message());
    }
  }
}

Status StreamSender::write_out(std::span<const Bytes> bulk, uint64_t bulk_bytes,
                               Deadline deadline) {
  const size_t connections = bulk_bytes < kLeastSharedBytes ? 1 : descriptors_.size();
  ShareCursor shares[kMaxConnections];
  for (size_t i = 0; i < connections; ++i) {
    shares[i] = ShareCursor(bulk, share_of(bulk_bytes, connections, i));
  }
  const std::lock_guard lock(socket_mutex_);
  unsigned full = 0;  // connections that take nothing now, by bit
  for (;;) {
    unsigned unfinished = 0;
    for (size_t i = 0; i < connections; ++i) {
      if (shares[i].left() == 0 && (i != 0 || (aside_->empty() && pending_->empty()))) continue;
      unfinished |= 1u << i;
      if ((full & 1u << i) != 0) continue;
      FARGPU_ASSIGN_OR_RETURN(const bool taken, write_some(i, pending_, shares[i]));
      if (!taken) full |= 1u << i;
    }
    if (unfinished == 0) return Status();
    if ((unfinished & ~full) == 0) {
      FARGPU_ASSIGN_OR_RETURN(const unsigned ready, wait_writable(unfinished, deadline));
      full &= ~ready;
    }
  }
}

Result<unsigned> StreamSender::wait_writable(unsigned connections, Deadline deadline) {
  ++room_waits;
  const Deadline stalled = deadline_after(stall_timeout_);
  pollfd entries[kMaxConnections];
  size_t count = 0;
  for (size_t i = 0; i < descriptors_.size(); ++i) {
    if ((connections & 1u << i) != 0) entries[count++] = {descriptors_[i], POLLOUT, 0};
  }
  system_calls.add(1);
  FARGPU_ASSIGN_OR_RETURN(const int ready,
                          poll_until(std::span(entries, count), std::min(deadline, stalled)));
  if (ready > 0) {
    unsigned writable = 0;
    for (size_t i = 0, entry = 0; i < descriptors_.size(); ++i) {
      if ((connections & 1u << i) != 0 && entries[entry++].revents != 0) writable |= 1u << i;
    }
    return writable;
  }
  if (deadline <= stalled) return peer_is_busy();
  return Status(
      StatusCode::kLost,
      fmt::format("connection lost: the peer took no data for {} s",
                  std::chrono::duration_cast<std::chrono::seconds>(stall_timeout_).count()));
}

}  // namespace fargpu::transport

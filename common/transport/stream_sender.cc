#include "common/transport/stream_sender.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/transport/commit_check.h"
#include "common/transport/poll.h"

namespace fargpu::transport {
namespace {

constexpr size_t kBufferBytes = 256 << 10;
// Smaller bulk is copied behind its frame: one large write is cheaper than many that gather small
// pieces.
constexpr size_t kCopiedBulkBytes = 8 << 10;

size_t round_up_8(size_t bytes) { return (bytes + 7) & ~size_t{7}; }

}  // namespace

StreamSender::StreamSender(int descriptor, size_t max_slot_bytes, Clock::duration stall_timeout)
    : descriptor_(descriptor),
      capacity_(std::max(round_up_8(max_slot_bytes), kBufferBytes)),
      stall_timeout_(stall_timeout),
      buffer_(std::make_unique_for_overwrite<std::byte[]>(capacity_)) {}

Result<std::span<std::byte>> StreamSender::reserve(size_t bytes, Deadline deadline) {
  if (bytes > capacity_) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("a frame of {} bytes is larger than {}", bytes, capacity_));
  }
  if (capacity_ - end_ < bytes || pending_end_ == kMaxPending) {
    FARGPU_RETURN_IF_ERROR(write_out({}, deadline));
  }
  slot_bytes_ = bytes;
  return std::span(buffer_.get() + end_, bytes);
}

void StreamSender::append_pending(size_t offset, size_t bytes) {
  std::byte* start = buffer_.get() + offset;
  if (pending_end_ > pending_begin_) {
    iovec& last = pending_[pending_end_ - 1];
    if (static_cast<std::byte*>(last.iov_base) + last.iov_len == start) {
      last.iov_len += bytes;
      return;
    }
  }
  pending_[pending_end_++] = iovec{start, bytes};
}

Status StreamSender::commit(size_t bytes, std::span<const Bytes> bulk, Deadline deadline) {
  FARGPU_ASSIGN_OR_RETURN(const uint64_t bulk_bytes,
                          check_commit(Bytes(buffer_.get() + end_, slot_bytes_), bytes, bulk));
  slot_bytes_ = 0;
  frames.add(1);

  const bool copied = bulk_bytes <= kCopiedBulkBytes && capacity_ - end_ - bytes >= bulk_bytes;
  append_pending(end_, bytes + (copied ? bulk_bytes : 0));
  end_ += bytes;
  if (!copied) return write_out(bulk, deadline);
  for (const Bytes& piece : bulk) {
    if (!piece.empty()) std::memcpy(buffer_.get() + end_, piece.data(), piece.size());
    end_ += piece.size();
  }
  end_ = std::min(round_up_8(end_), capacity_);
  return Status();
}

void StreamSender::consume(size_t bytes, std::span<const Bytes>& bulk, size_t& offset) {
  while (bytes > 0 && pending_begin_ < pending_end_) {
    iovec& first = pending_[pending_begin_];
    const size_t take = std::min(bytes, first.iov_len);
    first.iov_base = static_cast<std::byte*>(first.iov_base) + take;
    first.iov_len -= take;
    bytes -= take;
    if (first.iov_len == 0) ++pending_begin_;
  }
  while (bytes > 0) {
    const size_t take = std::min(bytes, bulk[0].size() - offset);
    offset += take;
    bytes -= take;
    if (offset == bulk[0].size()) {
      bulk = bulk.subspan(1);
      offset = 0;
    }
  }
}

Status StreamSender::write_out(std::span<const Bytes> bulk, Deadline deadline) {
  size_t offset = 0;  // sent of bulk[0]
  for (;;) {
    while (!bulk.empty() && bulk[0].size() == offset) {
      bulk = bulk.subspan(1);
      offset = 0;
    }
    iovec pieces[kMaxPieces];
    size_t count = 0;
    for (size_t i = pending_begin_; i < pending_end_; ++i) pieces[count++] = pending_[i];
    size_t skip = offset;
    for (size_t i = 0; i < bulk.size() && count < kMaxPieces; ++i) {
      if (bulk[i].size() > skip) {
        pieces[count++] =
            iovec{const_cast<std::byte*>(bulk[i].data()) + skip, bulk[i].size() - skip};
      }
      skip = 0;
    }
    if (count == 0) {
      pending_begin_ = pending_end_ = end_ = 0;
      return Status();
    }

    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = count;
    const ssize_t sent = ::sendmsg(descriptor_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    system_calls.add(1);
    if (sent >= 0) {
      bytes.add(static_cast<uint64_t>(sent));
      consume(static_cast<size_t>(sent), bulk, offset);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) {
      return Status(StatusCode::kLost,
                    system_error("connection lost while sending", errno).message());
    }
    FARGPU_RETURN_IF_ERROR(wait_writable(deadline));
  }
}

Status StreamSender::wait_writable(Deadline deadline) {
  const Deadline stalled = deadline_after(stall_timeout_);
  pollfd descriptor{descriptor_, POLLOUT, 0};
  system_calls.add(1);
  FARGPU_ASSIGN_OR_RETURN(const int ready,
                          poll_until(std::span(&descriptor, 1), std::min(deadline, stalled)));
  if (ready > 0) return Status();
  // Short enough to need no heap: a flush that must not wait ends here often.
  if (deadline <= stalled) return Status(StatusCode::kTimeout, "peer is busy");
  return Status(
      StatusCode::kLost,
      fmt::format("connection lost: the peer took no data for {} s",
                  std::chrono::duration_cast<std::chrono::seconds>(stall_timeout_).count()));
}

}  // namespace fargpu::transport

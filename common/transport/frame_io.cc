#include "common/transport/frame_io.h"

#include <sys/socket.h>

#include <cerrno>

#include "common/transport/poll.h"

namespace fargpu::transport {
namespace {

Status wait_for(int descriptor, short events, Deadline deadline) {
  pollfd entry{descriptor, events, 0};
  FARGPU_ASSIGN_OR_RETURN(const int ready, poll_until(std::span(&entry, 1), deadline));
  return ready > 0 ? Status() : Status(StatusCode::kTimeout, "the peer did not answer in time");
}

Status read_exactly(int descriptor, std::span<std::byte> room, Deadline deadline) {
  while (!room.empty()) {
    const ssize_t got = ::recv(descriptor, room.data(), room.size(), MSG_DONTWAIT);
    if (got > 0) {
      room = room.subspan(static_cast<size_t>(got));
    } else if (got == 0) {
      return Status(StatusCode::kLost, "the peer closed the connection");
    } else if (errno == EAGAIN) {
      FARGPU_RETURN_IF_ERROR(wait_for(descriptor, POLLIN, deadline));
    } else if (errno != EINTR) {
      return Status(StatusCode::kLost,
                    system_error("connection lost while receiving", errno).message());
    }
  }
  return Status();
}

Status write_exactly(int descriptor, std::span<const std::byte> data, int flags,
                     Deadline deadline) {
  while (!data.empty()) {
    const ssize_t sent =
        ::send(descriptor, data.data(), data.size(), MSG_DONTWAIT | MSG_NOSIGNAL | flags);
    if (sent >= 0) {
      data = data.subspan(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      FARGPU_RETURN_IF_ERROR(wait_for(descriptor, POLLOUT, deadline));
    } else if (errno != EINTR) {
      return Status(StatusCode::kLost,
                    system_error("connection lost while sending", errno).message());
    }
  }
  return Status();
}

}  // namespace

Result<OwnedFrame> read_one_frame(int descriptor, const wire::FrameLimits& limits,
                                  Deadline deadline) {
  OwnedFrame frame;
  FARGPU_RETURN_IF_ERROR(
      read_exactly(descriptor, std::as_writable_bytes(std::span(&frame.header, 1)), deadline));
  FARGPU_RETURN_IF_ERROR(wire::check_header(frame.header, limits));
  frame.body_words.resize(frame.header.body_bytes / sizeof(uint64_t));
  FARGPU_RETURN_IF_ERROR(
      read_exactly(descriptor, std::as_writable_bytes(std::span(frame.body_words)), deadline));
  frame.bulk.resize(frame.header.bulk_bytes);
  FARGPU_RETURN_IF_ERROR(read_exactly(descriptor, frame.bulk, deadline));
  return frame;
}

Status write_one_frame(int descriptor, wire::FrameHeader header, std::span<const std::byte> body,
                       std::span<const std::byte> bulk, Deadline deadline) {
  header.body_bytes = static_cast<uint32_t>(body.size());
  header.bulk_bytes = bulk.size();
  const bool more = !body.empty() || !bulk.empty();
  FARGPU_RETURN_IF_ERROR(write_exactly(descriptor, std::as_bytes(std::span(&header, 1)),
                                       more ? MSG_MORE : 0, deadline));
  FARGPU_RETURN_IF_ERROR(write_exactly(descriptor, body, bulk.empty() ? 0 : MSG_MORE, deadline));
  return write_exactly(descriptor, bulk, 0, deadline);
}

}  // namespace fargpu::transport

#include "server/handover/control_socket.h"

#include <fmt/core.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "common/base/check.h"
#include "common/transport/poll.h"

namespace fargpu::server {
namespace {

// Errors after which messages may still be there. ECONNRESET is reported once when the other end
// was closed with unread data.
bool is_passing(int error) { return error == EINTR || error == ECONNRESET; }

// For descriptors beside a message.
struct DescriptorRoom {
  alignas(cmsghdr) char bytes[CMSG_SPACE(kMostDescriptors * sizeof(int))];
};

std::vector<Fd> attached_descriptors(msghdr* message) {
  std::vector<Fd> all;
  const cmsghdr* const attached = CMSG_FIRSTHDR(message);
  if (attached == nullptr || attached->cmsg_level != SOL_SOCKET ||
      attached->cmsg_type != SCM_RIGHTS) {
    return all;
  }
  for (size_t at = 0; CMSG_LEN((at + 1) * sizeof(int)) <= attached->cmsg_len; ++at) {
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(attached) + at * sizeof(int), sizeof descriptor);
    all.emplace_back(descriptor);
  }
  return all;
}

// Waits for `events`. kTimeout.
Status wait_for(int socket, short events, transport::Deadline deadline) {
  pollfd entry{socket, events, 0};
  FARGPU_ASSIGN_OR_RETURN(const int ready, transport::poll_until(std::span(&entry, 1), deadline));
  return ready > 0 ? Status() : transport::peer_is_busy();
}

}  // namespace

Result<std::pair<Fd, Fd>> make_control_sockets() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return system_error("socketpair", errno);
  return std::pair(Fd(ends[0]), Fd(ends[1]));
}

Status send_message(int socket, const MessageBytes& message, transport::Deadline deadline) {
  return send_message(socket, message, std::span<const int>(), deadline);
}

Status send_message(int socket, const MessageBytes& message, int descriptor,
                    transport::Deadline deadline) {
  return send_message(socket, message, std::span(&descriptor, descriptor >= 0 ? 1 : 0), deadline);
}

Status send_message(int socket, const MessageBytes& message, std::span<const int> descriptors,
                    transport::Deadline deadline) {
  iovec piece{const_cast<std::byte*>(message.data()), message.size()};
  msghdr whole{};
  whole.msg_iov = &piece;
  whole.msg_iovlen = 1;
  DescriptorRoom room{};
  if (!descriptors.empty()) {
    FARGPU_CHECK(descriptors.size() <= kMostDescriptors);
    whole.msg_control = room.bytes;
    whole.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const attached = CMSG_FIRSTHDR(&whole);
    attached->cmsg_level = SOL_SOCKET;
    attached->cmsg_type = SCM_RIGHTS;
    attached->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(attached), descriptors.data(), descriptors.size_bytes());
  }
  for (;;) {
    const ssize_t sent = ::sendmsg(socket, &whole, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent == static_cast<ssize_t>(message.size())) return Status();
    if (sent >= 0) return {StatusCode::kLost, "half a message was sent"};
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      FARGPU_RETURN_IF_ERROR(wait_for(socket, POLLOUT, deadline));
    } else if (errno != EINTR) {
      return {StatusCode::kLost, fmt::format("nobody reads: {}", std::strerror(errno))};
    }
  }
}

Result<ReceivedMessage> receive_message(int socket, transport::Deadline deadline, Fd* descriptor) {
  if (descriptor == nullptr)
    return receive_message(socket, deadline, static_cast<std::vector<Fd>*>(nullptr));
  std::vector<Fd> all;
  auto message = receive_message(socket, deadline, &all);
  if (!all.empty()) *descriptor = std::move(all.front());
  return message;
}

Result<ReceivedMessage> receive_message(int socket, transport::Deadline deadline,
                                        std::vector<Fd>* descriptors) {
  ReceivedMessage message;
  // Only what a message needs is kept: first its size is asked for.
  ssize_t bytes = 0;
  for (;;) {
    bytes = ::recv(socket, nullptr, 0, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
    if (bytes >= 0) break;
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      FARGPU_RETURN_IF_ERROR(wait_for(socket, POLLIN, deadline));
    } else if (!is_passing(errno)) {
      return Status(StatusCode::kLost, std::strerror(errno));
    }
  }
  if (bytes == 0) return Status(StatusCode::kLost, "the other end is closed");
  const size_t size = static_cast<size_t>(bytes);
  if (size < sizeof message.header || size > kMostMessageBytes || size % sizeof(uint64_t) != 0)
    return Status(StatusCode::kProtocol, fmt::format("a message of {} bytes", size));
  message.body_words.resize((size - sizeof message.header) / sizeof(uint64_t));
  iovec pieces[] = {{&message.header, sizeof message.header},
                    {message.body_words.data(), size - sizeof message.header}};
  msghdr whole{};
  whole.msg_iov = pieces;
  whole.msg_iovlen = 2;
  // The system closes the descriptors for which there is no room.
  DescriptorRoom room{};
  ssize_t taken = 0;
  do {
    whole.msg_control = descriptors != nullptr ? room.bytes : nullptr;
    whole.msg_controllen = descriptors != nullptr ? sizeof room.bytes : 0;
    taken = ::recvmsg(socket, &whole, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (taken < 0 && is_passing(errno));
  if (taken >= 0 && descriptors != nullptr) *descriptors = attached_descriptors(&whole);
  if (taken != bytes) return Status(StatusCode::kLost, "a message has gone");
  constexpr wire::FrameLimits kLimits{kMostMessageBytes, 0};
  FARGPU_RETURN_IF_ERROR(wire::check_header(message.header, kLimits));
  if (message.header.body_bytes != size - sizeof message.header)
    return Status(StatusCode::kProtocol, "a message is longer than it says");
  return message;
}

}  // namespace fargpu::server

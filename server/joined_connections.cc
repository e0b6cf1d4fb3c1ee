#include "server/joined_connections.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>

#include "common/transport/poll.h"

namespace fargpu::server {
namespace {

// Room for one descriptor beside a message.
union Control {
  cmsghdr header;
  char bytes[CMSG_SPACE(sizeof(int))];
};

}  // namespace

Result<std::pair<ConnectionJoiner, Fd>> ConnectionJoiner::create(uint16_t most) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return system_error("socketpair", errno);
  ConnectionJoiner joiner;
  joiner.socket_.reset(ends[0]);
  Fd worker(ends[1]);
  joiner.most_ = most;
  FARGPU_ASSIGN_OR_RETURN(joiner.key_, bootstrap::make_session_key());
  if (::send(ends[0], joiner.key_.data(), joiner.key_.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(joiner.key_.size())) {
    return system_error("cannot write the session's key", errno);
  }
  return std::pair(std::move(joiner), std::move(worker));
}

Status ConnectionJoiner::check(std::span<const std::byte> key, uint16_t index) const {
  if (!bootstrap::same_key(key_, key))
    return {StatusCode::kRefused, "the session's key is another one"};
  if (index >= most_ || (joined_ & 1u << index) != 0)
    return {StatusCode::kRefused, "the session has no such further connection"};
  return {};
}

Status ConnectionJoiner::pass(int connection, uint16_t index) {
  iovec piece{&index, sizeof index};
  Control control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof connection);
  std::memcpy(CMSG_DATA(header), &connection, sizeof connection);
  if (::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
    return {StatusCode::kLost, "the session takes no further connections any more"};
  }
  joined_ |= 1u << index;
  return {};
}

Result<JoinedConnections> JoinedConnections::adopt(Fd socket) {
  JoinedConnections joined;
  joined.socket_ = std::move(socket);
  // Written before this process began.
  if (::recv(joined.socket_.get(), joined.key_.data(), joined.key_.size(), MSG_DONTWAIT) !=
      static_cast<ssize_t>(joined.key_.size())) {
    return system_error("cannot read the session's key", errno);
  }
  return joined;
}

Result<Fd> JoinedConnections::take(size_t index, transport::Deadline deadline) {
  for (;;) {
    if (const auto found = waiting_.find(index); found != waiting_.end()) {
      Fd connection = std::move(found->second);
      waiting_.erase(found);
      return connection;
    }
    pollfd entry{socket_.get(), POLLIN, 0};
    FARGPU_ASSIGN_OR_RETURN(const int ready, transport::poll_until(std::span(&entry, 1), deadline));
    if (ready == 0)
      return Status(StatusCode::kTimeout, "a further connection was announced and did not come");
    uint16_t came = 0;
    iovec piece{&came, sizeof came};
    Control control{};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof control.bytes;
    const ssize_t got = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (got != sizeof came || header == nullptr || header->cmsg_type != SCM_RIGHTS) {
      return Status(StatusCode::kLost, "the daemon brings no further connections");
    }
    int connection = -1;
    std::memcpy(&connection, CMSG_DATA(header), sizeof connection);
    waiting_[came].reset(connection);
  }
}

}  // namespace fargpu::server

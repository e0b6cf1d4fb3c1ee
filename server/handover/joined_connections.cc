#include "server/handover/joined_connections.h"

#include <sys/socket.h>

#include <cerrno>
#include <vector>

#include "common/transport/shm/shm_socket.h"

namespace fargpu::server {
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

Status no_such_join() {
  return {StatusCode::kRefused, "no session awaits this further connection"};
}

Status ConnectionJoiner::check(std::span<const std::byte> key, uint16_t index) const {
  const bool fits = index < most_ && (joined_ & 1u << index) == 0;
  return bootstrap::same_key(key_, key) && fits ? Status() : no_such_join();
}

Status ConnectionJoiner::pass(int connection, uint16_t index) {
  if (!transport::send_with_descriptors(socket_.get(), std::as_bytes(std::span(&index, 1)),
                                        std::span(&connection, 1), transport::Clock::now())
           .ok()) {
    return {StatusCode::kLost, "the session takes no further connections any more"};
  }
  joined_ |= 1u << index;
  return {};
}

Result<JoinedConnections> JoinedConnections::adopt(Fd socket) {
  JoinedConnections joined;
  joined.socket_ = std::move(socket);
  // The daemon wrote it before it started this process.
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
    uint16_t came = 0;
    std::vector<Fd> connections;
    const Status status = transport::receive_with_descriptors(
        socket_.get(), std::as_writable_bytes(std::span(&came, 1)), connections, deadline);
    if (status.code() == StatusCode::kTimeout)
      return Status(StatusCode::kTimeout, "a further connection was announced and did not come");
    if (!status.ok() || connections.size() != 1)
      return Status(StatusCode::kLost, "the daemon brings no further connections");
    waiting_[came] = std::move(connections[0]);
  }
}

}  // namespace fargpu::server

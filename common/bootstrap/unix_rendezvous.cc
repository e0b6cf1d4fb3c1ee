#include "common/bootstrap/unix_rendezvous.h"

#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "common/base/descriptors.h"
#include "common/transport/poll.h"

namespace fargpu::bootstrap {
namespace {

constexpr auto kCookiePatience = std::chrono::seconds(
    2);  // a connection that says nothing must not hold up the right one for long

constexpr std::string_view kPrefix = "fargpu-";

// As open() makes them: a server must not lead its clients to other sockets of their host.
bool is_name(std::string_view name) {
  return name.size() > kPrefix.size() && name.starts_with(kPrefix) &&
         name.size() < sizeof(sockaddr_un::sun_path) &&
         name.find_first_not_of("0123456789abcdef", kPrefix.size()) == name.npos;
}

// The address of the abstract socket `name`, and its length.
std::pair<sockaddr_un, socklen_t> abstract_address(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

bool shows(const Fd& socket, const Cookie& cookie) {
  Cookie shown{};
  pollfd entry{socket.get(), POLLIN, 0};
  const auto ready =
      transport::poll_until(std::span(&entry, 1), transport::Clock::now() + kCookiePatience);
  if (!ready.ok() || *ready == 0) return false;
  // The client sends it at once and in one piece.
  if (::recv(socket.get(), shown.data(), shown.size(), MSG_DONTWAIT) !=
      static_cast<ssize_t>(shown.size()))
    return false;
  return same_key(cookie, shown);
}

}  // namespace

Result<UnixRendezvous> UnixRendezvous::open() {
  FARGPU_ASSIGN_OR_RETURN(const Cookie cookie, make_session_key());
  FARGPU_ASSIGN_OR_RETURN(const Cookie random, make_session_key());
  std::string name(kPrefix);
  for (const std::byte byte : random)
    name += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  Fd socket = descriptors::make(
      [] { return ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
  if (!socket.valid()) return system_error("socket", errno);
  const auto [address, length] = abstract_address(name);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0)
    return system_error("bind", errno);
  if (::listen(socket.get(), 8) != 0) return system_error("listen", errno);
  return UnixRendezvous(std::move(socket), std::move(name), cookie);
}

Result<Fd> UnixRendezvous::accept(transport::Deadline deadline) {
  for (;;) {
    pollfd entry{socket_.get(), POLLIN, 0};
    FARGPU_ASSIGN_OR_RETURN(const int ready, transport::poll_until(std::span(&entry, 1), deadline));
    if (ready == 0)
      return Status(StatusCode::kTimeout, "the client did not come to the unix socket in time");
    Fd socket(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket.valid()) {
      if (errno == ECONNABORTED || errno == EAGAIN || errno == EINTR) continue;  // gone again
      return system_error("cannot accept on the unix socket", errno);
    }
    if (shows(socket, cookie_)) return socket;
  }
}

Result<Fd> connect_to_rendezvous(const std::string& name, std::span<const std::byte> cookie) {
  if (!is_name(name) || cookie.size() != sizeof(Cookie)) {
    return Status(StatusCode::kInvalidArgument, "the server's offer of a unix socket is malformed");
  }
  Fd socket = descriptors::make([] { return ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0); });
  if (!socket.valid()) return system_error("socket", errno);
  const auto [address, length] = abstract_address(name);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    return Status(
        StatusCode::kLost,
        fmt::format("the worker's unix socket cannot be reached ({}): another network namespace?",
                    std::strerror(errno)));
  }
  if (::send(socket.get(), cookie.data(), cookie.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(cookie.size())) {
    return system_error("cannot write to the worker's unix socket", errno);
  }
  return socket;
}

}  // namespace fargpu::bootstrap

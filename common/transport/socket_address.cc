#include "common/transport/socket_address.h"

#include <fmt/core.h>
#include <netdb.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstring>

namespace fargpu::transport {
namespace {

template <int (*query)(int, sockaddr*, socklen_t*) noexcept>
Result<SocketAddress> address_of(int socket) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (query(socket, reinterpret_cast<sockaddr*>(&storage), &length) != 0) {
    return system_error("the socket has no address", errno);
  }
  return SocketAddress::from(reinterpret_cast<const sockaddr*>(&storage));
}

}  // namespace

Result<SocketAddress> SocketAddress::from(const sockaddr* address) {
  SocketAddress made;
  if (address->sa_family == AF_INET) {
    std::memcpy(&made.storage_, address, sizeof(sockaddr_in));
    return made;
  }
  if (address->sa_family != AF_INET6) {
    return Status(StatusCode::kInvalidArgument, "not an Internet address");
  }
  sockaddr_in6 v6;
  std::memcpy(&v6, address, sizeof v6);
  if (!IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    std::memcpy(&made.storage_, &v6, sizeof v6);
    return made;
  }
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = v6.sin6_port;
  std::memcpy(&v4.sin_addr, v6.sin6_addr.s6_addr + 12, 4);
  std::memcpy(&made.storage_, &v4, sizeof v4);
  return made;
}

Result<SocketAddress> SocketAddress::parse(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    return Status(StatusCode::kInvalidArgument, fmt::format("'{}' is not a numeric address", host));
  }
  auto made = from(found->ai_addr);
  ::freeaddrinfo(found);
  return made;
}

Result<SocketAddress> SocketAddress::local_of(int socket) {
  return address_of<::getsockname>(socket);
}

Result<SocketAddress> SocketAddress::remote_of(int socket) {
  return address_of<::getpeername>(socket);
}

uint16_t SocketAddress::port() const {
  // The port is in the same place in both families.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port);
}

void SocketAddress::set_port(uint16_t port) {
  reinterpret_cast<sockaddr_in*>(&storage_)->sin_port = htons(port);
}

std::string SocketAddress::host() const {
  char text[NI_MAXHOST] = "";
  const socklen_t length = family() == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  if (::getnameinfo(get(), length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) {
    return "no address";
  }
  return text;
}

std::string SocketAddress::text() const {
  return family() == AF_INET6 ? fmt::format("[{}]:{}", host(), port())
                              : fmt::format("{}:{}", host(), port());
}

}  // namespace fargpu::transport

// An Internet address with a port, IPv4 or IPv6. A plain value.
//
// An IPv4 address in IPv6 clothes, which a listener for both families shows, becomes IPv4.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "common/base/status.h"

namespace fargpu::transport {

class SocketAddress {
 public:
  SocketAddress() = default;
  // A numeric address, "10.0.0.1", "2001:db8::1" or "fe80::1%eth0".
  static Result<SocketAddress> parse(const std::string& host, uint16_t port);
  // The ends of a connected TCP socket.
  static Result<SocketAddress> local_of(int socket);
  static Result<SocketAddress> remote_of(int socket);
  static Result<SocketAddress> from(const sockaddr* address);

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage_); }
  int family() const { return storage_.ss_family; }
  uint16_t port() const;
  void set_port(uint16_t port);
  std::string host() const;  // "10.0.0.1", "fe80::1%eth0"
  std::string text() const;  // "10.0.0.1:4000", "[fe80::1%eth0]:4000"

 private:
  sockaddr_storage storage_{};
};

}  // namespace fargpu::transport

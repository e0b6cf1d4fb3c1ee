// Connecting to a fargpud by what FARGPU_SERVER and --server say.
#pragma once

#include <string>
#include <variant>

#include "common/base/fd.h"
#include "common/base/parse.h"
#include "common/base/status.h"
#include "common/transport/transport.h"

namespace fargpu::bootstrap {

// A TCP endpoint, or the path of a unix socket.
struct ServerAddress {
  std::variant<Endpoint, std::string> where;
  std::string to_string() const;
};

// "host", "host:14900", "[v6]:14900"; "/path/of/socket" or "unix:/path/of/socket".
Result<ServerAddress> parse_server(const std::string& text);

// kTimeout, kNotFound (no such host) or kLost (refused, unreachable), with the address in the message.
Result<Fd> connect_server(const ServerAddress& server, transport::Deadline deadline);

// "10.0.0.5" or "fe80::1": the address of one end of a connected TCP socket; empty for other sockets.
std::string peer_address(int socket);

}  // namespace fargpu::bootstrap

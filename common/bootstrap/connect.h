// Connecting to a fargpud by what FARGPU_SERVER and --server say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/base/fd.h"
#include "common/base/parse.h"
#include "common/base/status.h"
#include "common/transport/transport.h"

namespace fargpu::bootstrap {

// A TCP endpoint, or the path of a unix socket.
struct ServerAddress {
  std::variant<Endpoint, std::string> where;
  bool tls = false;              // of an endpoint: encrypted, or no connection at all
  std::string authority_file{};  // PEM, the trusted authorities of TLS; empty: the system's
  std::string to_string() const;
};

// The path that the name of a server is: it begins with "unix:", or has a '/' and no "://".
std::optional<std::string> socket_path(const std::string& text);

// "host", "host:14900", "[v6]:14900", the same behind "tls://"; or a socket_path(). The
// authority file is what FARGPU_TLS_CA says.
Result<ServerAddress> parse_server(const std::string& text);

// Several servers of one program, separated by commas: their texts, trimmed. kInvalidArgument: one
// of them is empty, makes no sense, or is named twice (the message says which), or there are more
// than kMaxServers.
inline constexpr size_t kMaxServers = 16;
Result<std::vector<std::string>> split_servers(const std::string& list);

// Whether servers of one program are different daemons, regardless of their names. One thread.
class DistinctServers {
 public:
  // `daemon`: the server's daemonId; 0: none, and not compared. kInvalidArgument, with both names:
  // one that was added before said the same.
  Status add(const std::string& name, uint64_t daemon);

 private:
  std::map<uint64_t, std::string> names_;  // by daemon
};

// kTimeout, kNotFound (no such host), kLost (refused, unreachable) or kRefused (its certificate is
// not to be trusted), with the address in the message. With tls, the socket is the plain end of a
// tunnel (common/tls).
Result<Fd> connect_server(const ServerAddress& server, transport::Deadline deadline);

}  // namespace fargpu::bootstrap

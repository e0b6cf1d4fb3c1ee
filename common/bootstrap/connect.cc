#include "common/bootstrap/connect.h"

#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "common/base/descriptors.h"
#include "common/base/env.h"
#include "common/base/since_load.h"
#include "common/tls/tls_tunnel.h"
#include "common/transport/tcp/tcp.h"

namespace fargpu::bootstrap {
namespace {

Result<Fd> connect_unix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  Fd fd = descriptors::make([] { return ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0); });
  if (!fd.valid()) return system_error("socket", errno);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    const int error = errno;
    if (const std::string why = explanation(error); !why.empty()) {
      return Status(StatusCode::kSystem,
                    fmt::format("cannot connect to {}: {}{}; call cuInit before that", path,
                                std::strerror(error), why));
    }
    if (error == EACCES) {
      return Status(StatusCode::kRefused,
                    fmt::format("cannot connect to {}: {}; this user may not write to the socket, "
                                "or not enter its folder, which fargpud's --socket-mode can allow",
                                path, std::strerror(error)));
    }
    return Status(StatusCode::kLost,
                  fmt::format("cannot connect to {}: {}; is fargpud listening there?", path,
                              std::strerror(error)));
  }
  return fd;
}

}  // namespace

std::string ServerAddress::to_string() const {
  if (const auto* endpoint = std::get_if<Endpoint>(&where))
    return (tls ? "tls://" : "") + endpoint->to_string();
  return "unix:" + std::get<std::string>(where);
}

std::optional<std::string> socket_path(const std::string& text) {
  constexpr std::string_view kUnix = "unix:";
  if (text.starts_with(kUnix)) return text.substr(kUnix.size());
  if (text.find('/') == std::string::npos || text.find("://") != std::string::npos)
    return std::nullopt;
  return text;
}

Result<ServerAddress> parse_server(const std::string& text) {
  if (auto named = socket_path(text)) {
    std::string path = std::move(*named);
    if (path.empty() || path.size() >= sizeof(sockaddr_un::sun_path)) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("the socket path '{}' must have 1 to {} bytes", path,
                                sizeof(sockaddr_un::sun_path) - 1));
    }
    return ServerAddress{std::move(path)};
  }
  constexpr std::string_view kTls = "tls://";
  const bool tls = text.starts_with(kTls);
  if (text.starts_with("tls:///")) {
    return Status(StatusCode::kInvalidArgument, fmt::format("'{}': TLS is for HOST:PORT", text));
  }
  if (!tls && text.find("://") != std::string::npos) {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("'{}': a server is host, host:port, tls://host:port or unix:PATH", text));
  }
  FARGPU_ASSIGN_OR_RETURN(Endpoint endpoint, parse_endpoint(tls ? text.substr(kTls.size()) : text));
  return ServerAddress{std::move(endpoint), tls, tls ? env_text("FARGPU_TLS_CA").value_or("") : ""};
}

Result<std::vector<std::string>> split_servers(const std::string& list) {
  std::vector<std::string> servers;
  std::set<std::string> seen;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    std::string text = list.substr(begin, end - begin);
    text.erase(0, text.find_first_not_of(' '));
    text.erase(text.find_last_not_of(' ') + 1);
    if (text.empty()) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("'{}': a server is missing beside a comma", list));
    }
    FARGPU_ASSIGN_OR_RETURN(const ServerAddress address, parse_server(text));
    if (!seen.insert(address.to_string()).second) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("{} is named twice in '{}'; one server gives as many GPUs as "
                                "--gpus says",
                                address.to_string(), list));
    }
    servers.push_back(std::move(text));
    begin = end + 1;
  }
  if (servers.size() > kMaxServers) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("'{}': {} servers are named; a program may have {}", list,
                              servers.size(), kMaxServers));
  }
  return servers;
}

Status DistinctServers::add(const std::string& name, uint64_t daemon) {
  if (daemon == 0) return Status();
  const auto [found, is_new] = names_.emplace(daemon, name);
  if (is_new) return Status();
  return {StatusCode::kInvalidArgument,
          fmt::format("{} and {} are one server, named twice; one server gives as many GPUs as "
                      "--gpus says",
                      found->second, name)};
}

Result<Fd> connect_server(const ServerAddress& server, transport::Deadline deadline) {
  if (const auto* path = std::get_if<std::string>(&server.where)) return connect_unix(*path);
  const auto& endpoint = std::get<Endpoint>(server.where);
  FARGPU_ASSIGN_OR_RETURN(Fd socket, transport::tcp_connect(endpoint, deadline));
  if (!server.tls) return socket;
  auto tunnel = tls::open_tunnel(std::move(socket), endpoint.host, server.authority_file, deadline);
  if (tunnel.ok()) return tunnel;
  const char* what = tunnel.status().code() == StatusCode::kRefused
                         ? "the server's certificate is not to be trusted"
                     : tunnel.status().code() == StatusCode::kProtocol
                         ? "the server does not speak TLS"
                         : "no TLS connection";
  return Status(tunnel.status().code(),
                fmt::format("{}: {}: {}", server.to_string(), what, tunnel.status().message()));
}

}  // namespace fargpu::bootstrap

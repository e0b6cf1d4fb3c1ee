#include "server/job/tenant_id.h"

#include <sys/socket.h>

#include "common/host/sha256.h"

namespace fargpu::server {

TenantId tenant_of(int socket, const std::string& token) {
  int domain = 0;
  socklen_t bytes = sizeof domain;
  if (::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 && domain == AF_UNIX) {
    ucred peer{};
    bytes = sizeof peer;
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0)
      return {"uid " + std::to_string(peer.uid)};
  }
  if (token.empty()) return {"everybody"};
  return {"token " + to_hex(sha256(std::as_bytes(std::span(token))))};
}

}  // namespace fargpu::server

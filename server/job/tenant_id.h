// TenantId: to whom the daemon charges what it keeps beyond a session. Sessions of one tenant may
// learn of each other; those of two may not. Until tenants have names of their own, whoever
// connects over a unix socket is the user of the process there, and others are the token.
#pragma once

#include <compare>
#include <string>

namespace fargpu::server {

struct TenantId {
  std::string text;  // for comparisons only: it may come from a secret
  friend auto operator<=>(const TenantId&, const TenantId&) = default;
};

// Whose connection it is, which has shown `token` (empty: none is asked for). `socket`: the
// client's; the plain end of a relay is none: -1.
TenantId tenant_of(int socket, const std::string& token);

}  // namespace fargpu::server

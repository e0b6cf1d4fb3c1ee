// Where a client that came over TCP meets its worker on a unix socket: descriptors can be passed
// only there.
//
// An abstract socket, so no file is left behind; its name is random, and a client must present the
// session's cookie. Works between containers that share a network namespace; elsewhere the client
// cannot connect and the session stays on TCP.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "common/base/fd.h"
#include "common/base/status.h"
#include "common/host/session_key.h"
#include "common/transport/transport.h"

namespace fargpu::bootstrap {

using Cookie = SessionKey;

class UnixRendezvous {
 public:
  static Result<UnixRendezvous> open();
  const std::string& name() const { return name_; }
  const Cookie& cookie() const { return cookie_; }
  // The connection that showed the cookie; others are dropped. kTimeout: call again.
  Result<Fd> accept(transport::Deadline deadline);

 private:
  UnixRendezvous(Fd socket, std::string name, Cookie cookie)
      : socket_(std::move(socket)), name_(std::move(name)), cookie_(cookie) {}
  Fd socket_;
  std::string name_;
  Cookie cookie_;
};

// The client's end. kInvalidArgument: not a name or cookie as the server makes them.
Result<Fd> connect_to_rendezvous(const std::string& name, std::span<const std::byte> cookie);

}  // namespace fargpu::bootstrap

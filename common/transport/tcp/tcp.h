// TCP: connecting and accepting. Both give a plain connected socket, which from_fd() (stream.h)
// makes a transport.
//
// The listener may be used from one thread; stop() from any.
#pragma once

#include <memory>
#include <string>

#include "common/base/fd.h"
#include "common/base/parse.h"
#include "common/transport/tcp/stream.h"
#include "common/transport/transport.h"

namespace fargpu::transport {

// Resolves the name and tries its addresses in turn. kTimeout, kNotFound (no such host) or kLost
// (refused, unreachable), with the endpoint in the message.
Result<Fd> tcp_connect(const Endpoint& endpoint, Deadline deadline);

// Of accept(2): kNoCapacity where no descriptor is left, else kSystem.
Status accept_failed(int error_number);

class TcpListener {
 public:
  // Binds and listens. Port 0: the system chooses (see port()); host "*": every address, IPv6 and
  // IPv4.
  static Result<TcpListener> open(const Endpoint& endpoint);
  TcpListener(TcpListener&&) noexcept;
  TcpListener& operator=(TcpListener&&) noexcept;
  ~TcpListener();

  // The next connection, its socket options set. kTimeout when the deadline passed, kLost after
  // stop(); as accept_failed().
  Result<Fd> accept(Deadline deadline);
  uint16_t port() const;
  // Polls readable when accept() has something to do.
  int descriptor() const;
  // Makes the current and every later accept() return kLost. Any thread.
  void stop();

 private:
  struct Impl;
  explicit TcpListener(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace fargpu::transport

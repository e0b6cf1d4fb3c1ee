// The daemon's side of fargpu-tls-relay: one process for each TLS connection, which begins before
// its hello and lasts as long as its session.
//
// The daemon and later the worker hold the plain end of a pair of unix sockets. On the daemon's
// thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <set>
#include <string>

#include "common/base/fd.h"
#include "common/base/status.h"
#include "server/launch/watched_process.h"

namespace fargpu::server {

// Descriptors that a relay inherits, by number.
inline constexpr int kTlsSocketFd = 3;  // the client's connection, from which nothing was read
inline constexpr int kTlsPlainFd = 4;

struct TlsRelayOptions {
  std::string certificate_file,
      key_file;              // PEM; read anew by each relay, so that they can be renewed
  std::string peer;          // for the log
  int64_t milliseconds = 0;  // that the handshake may take
  int64_t lost_client = 0;   // ms that the client's host may be silent; 0: as the system has it
};

class TlsRelays {
 public:
  TlsRelays(boost::asio::io_context& loop, Launcher& launcher, std::string program)
      : loop_(loop), launcher_(launcher), program_(std::move(program)) {}
  // Starts one for `socket`; the plain end.
  Result<Fd> start(Fd socket, const TlsRelayOptions& options);

 private:
  boost::asio::io_context& loop_;
  Launcher& launcher_;
  const std::string program_;
  std::set<std::shared_ptr<WatchedProcess>> running_;
};

}  // namespace fargpu::server

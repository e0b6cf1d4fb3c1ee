// The cost of a link without fargpu, for comparison: bytes there, bytes back, nothing else.
// Questions:
//   round_trip   `bytes` there and as many back, in `count` conversations at once
//   to_server    `bytes` there, a byte back
//   to_client    a byte there, `bytes` back
// Throw Failed. One thread asks; the helpers' own threads end with the call.
#pragma once

#include <functional>
#include <memory>

#include "client/bench/figures/exchange.h"
#include "common/base/fd.h"
#include "common/base/parse.h"

namespace fargpu::bench {

// Over stream sockets. A copy is spread over `connections`.
class BareSockets final {
 public:
  using Connect = std::function<Fd()>;
  BareSockets(Connect connect, unsigned connections)
      : connect_(std::move(connect)), connections_(connections) {}
  Answer measure(const Question& question);

 private:
  Connect connect_;
  unsigned connections_;
};

// Through the rings of the shared-memory transport, between two threads.
Answer measure_rings(const Question& question);

// The other end of the sockets. It reads and answers as each connection's first bytes say, keeps
// nothing, and has at most 1 MiB of a connection's bytes each way. Ends a connection that says
// anything else.
class Peer final {
 public:
  static Result<Peer> listen(const Endpoint& endpoint);
  Peer(Peer&&) noexcept;
  Peer& operator=(Peer&&) = delete;
  ~Peer();  // ends all connections
  uint16_t port() const;
  // A connection to it, without going through its listener: a pair of unix sockets.
  Fd connect_here();
  // Serves until this process ends.
  [[noreturn]] void serve();

 private:
  struct Impl;
  explicit Peer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Whether both ends look for bytes without sleeping: where fargpu's own do.
bool bare_ends_spin();

}  // namespace fargpu::bench

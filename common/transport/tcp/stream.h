// The transport over any connected stream socket: TCP, or a unix socket on one host.
//
// Sending gathers small frames and sends bulk from the caller's memory; receiving puts bulk
// straight where the handler wants it. Every system call is non-blocking by itself (MSG_DONTWAIT),
// so the mode of a descriptor that came from elsewhere does not matter. Thread rules as in
// transport.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "common/transport/transport.h"

namespace fargpu::transport {

struct StreamOptions {
  wire::FrameLimits receive_limits{};  // limits of received frames
  // what the peer accepts: bounds reserve(); at most 16 MiB count
  uint32_t max_send_body_bytes = 1u << 20;
  // A peer that takes no byte for this long is lost. Long, because a server may be busy compiling a
  // module.
  std::chrono::milliseconds stall_timeout{60000};
  // For an end that decides by itself whether its peer is alive (rpc::Channel).
  static constexpr std::chrono::milliseconds kNeverStalls = std::chrono::hours(24 * 365);
  // receive() spins this long before it sleeps. 0: sleeps at once.
  std::chrono::microseconds spin{0};
  // Bytes that were read from the socket before it was given to us, e.g. together with the hello.
  std::vector<std::byte> initial_bytes{};
  // Not empty: the socket leads to a relay on this host (common/tls), and this text names the other
  // side of the relay, "tls 10.0.0.5:14900".
  std::string behind{};
};

// Adopts a connected stream socket, however it was made; for a worker, by the number that it
// inherited. Sets close-on-exec and, for TCP, no-delay and keepalive. The descriptor is closed on
// failure too.
Result<std::unique_ptr<Transport>> from_fd(Fd socket, StreamOptions options);

// The same over several connections between the same two ends, at most kMaxConnections, in the same
// order at both: the first carries the frames, large bulk is spread over all (bulk_shares.h). The
// end of any of them is the end of the session.
Result<std::unique_ptr<Transport>> from_fds(std::vector<Fd> sockets, StreamOptions options);

// "127.0.0.1:40122", "[::1]:40122" or "unix": the other end of a connected socket, for logs.
std::string peer_name(int descriptor);

}  // namespace fargpu::transport

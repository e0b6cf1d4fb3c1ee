// The rdma transport: frames over a reliable connection of RDMA verbs (InfiniBand, or RoCE v2), set
// up by rdma_cm.
//
// A session begins on a stream socket. The server's end makes an RdmaAcceptor on the address that
// the client's connection came to and tells the client its offer (a port and a random cookie); the
// client then calls rdma_connect() with the host that it already talks to, while the server is
// inside accept(). Both get a Transport with remote_memory(). Each failure is a Status that says
// why, so that the session can go on over its stream socket:
//   kUnsupported  this build has no rdma, rdma-core is not installed, or the device is one of iWARP
//   kNotFound     no RDMA device on this host, or none on the route
//   kNoCapacity   the limit of locked memory, or of the adapter
//   kRefused      the peer's end said no
//   kTimeout      the peer did not answer
//   kLost         the peer went away
// The way of the bytes is described in docs/adr/0011-rdma-transport.md.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "common/transport/socket_address.h"
#include "common/transport/tcp/stream.h"
#include "common/transport/transport.h"

namespace fargpu::transport {

struct RdmaOptions {
  wire::FrameLimits receive_limits{};  // limits of received frames
  // what the peer accepts: bounds reserve(); at most 16 MiB count
  uint32_t max_send_body_bytes = 1u << 20;
  // A peer that takes no byte for this long is lost. Long, because a server may be busy compiling a
  // module.
  std::chrono::milliseconds stall_timeout{60000};
  // A peer is lost when its adapter does not answer, or our port is down, for this long. A waiting
  // end checks that by itself, a few times in this period.
  std::chrono::milliseconds lost_after{5000};
  // A wait polls this long before it sleeps. 0: sleeps at once.
  std::chrono::microseconds spin{20};
  // Locked memory of this end: memory that the peer writes into, and memory that this end sends
  // from. Powers of two, from 64 KiB to 1 GiB.
  uint32_t ring_bytes = 2u << 20;
  uint32_t staging_bytes = 1u << 20;
};

// Those that the transports have in common.
RdmaOptions rdma_options(const StreamOptions& options);

struct RdmaOffer {
  uint16_t port = 0;
  std::array<std::byte, 16> cookie{};
};

// The server's end before it is connected. One thread.
class RdmaAcceptor {
 public:
  virtual ~RdmaAcceptor() = default;
  // Listens on a port that the system chooses, at this address (its port does not count).
  static Result<std::unique_ptr<RdmaAcceptor>> listen(const SocketAddress& local,
                                                      RdmaOptions options);
  virtual RdmaOffer offer() const = 0;
  // Accepts the peer that knows the cookie; others are rejected. kTimeout: no peer came, call
  // again. Once a peer has come, the rest takes up to lost_after more. `bootstrap`, if valid, is
  // the session's stream socket. It is taken on success and left alone otherwise; when it ends, the
  // transport ends too.
  virtual Result<std::unique_ptr<Transport>> accept(Fd& bootstrap, Deadline deadline) = 0;
};

// `remote` is the server's host; the port is the offer's. `bootstrap` as above.
Result<std::unique_ptr<Transport>> rdma_connect(SocketAddress remote, const RdmaOffer& offer,
                                                RdmaOptions options, Fd& bootstrap,
                                                Deadline deadline);

// One address of a port.
struct RdmaGid {
  unsigned index = 0;
  std::string value;  // "::ffff:10.0.0.1"
  std::string type;   // "RoCE v2", "RoCE v1", "InfiniBand"
  // "GID 1 ::ffff:10.0.0.1 (RoCE v2)"
  std::string text() const;
};

// Data of a port for `fargpu doctor`.
struct RdmaPort {
  std::string device;  // "mlx5_0"
  unsigned port = 0;   // 1
  bool active = false;
  std::string state;          // "active"
  std::string link_layer;     // "InfiniBand", "Ethernet"
  std::vector<RdmaGid> gids;  // of list_rdma_ports(): all; of a probe: that of the address
  unsigned mtu = 0;           // bytes, of the port
  // "rxe0 port 1: active, Ethernet, mtu 4096, GID 0 fe80::1 (RoCE v2), GID 1 ::ffff:10.0.0.1 (RoCE
  // v2)"
  std::string text() const;
};

// The port that rdma_cm would use to reach a peer, or the one that has this local address.
// kNotFound and kUnsupported as above.
Result<RdmaPort> probe_rdma_route(const SocketAddress& remote, Deadline deadline);
Result<RdmaPort> probe_rdma_local(const SocketAddress& local);
// Every port of every device of this host. kUnsupported as above.
Result<std::vector<RdmaPort>> list_rdma_ports();

}  // namespace fargpu::transport

// The transport over shared memory, for two processes of one host: rings in a memfd, woken and
// watched through a unix socket.
//
// The two ends begin with a connected unix stream socket on which nothing is under way. One calls
// shm_serve, the other shm_join, each with a deadline; both then have a transport, or a Status:
//   kUnsupported   not between these two, with the reason (of whichever end). Both ends know, and
//                  the socket is in step: the session can go on over it as a stream.
//   anything else  (kTimeout, kLost, kProtocol) the socket is of no more use.
// The socket is taken over on success only. Exactly the set-up's bytes are read from it.
//
// Frames are built in private memory and copied into the ring by commit(); the receiver copies them
// out before it looks at them, so a peer that writes into the shared memory at the wrong time
// changes nothing but its own bytes (docs/adr/0010-shared-memory-transport.md). While both ends are
// awake, no frame costs a system call. A receiver looks for `spin` without sleeping, then sleeps in
// poll; flush() rings the peer when it sleeps. A thread that sleeps on poll_descriptor() outside
// receive() must call arm() first. descriptor_passing() is there. Thread rules as in transport.h.
#pragma once

#include <memory>

#include "common/base/fd.h"
#include "common/transport/tcp/stream.h"
#include "common/transport/transport.h"

namespace fargpu::transport {

// As for a stream: receive_limits, max_send_body_bytes, stall_timeout and spin mean the same.
struct ShmOptions {
  wire::FrameLimits receive_limits{};
  uint32_t max_send_body_bytes = 1u << 20;
  std::chrono::milliseconds stall_timeout{60000};
  std::chrono::microseconds spin{0};
};
ShmOptions shm_options(const StreamOptions& options);

struct ShmRings {
  // Bytes of each direction, a power of two from 64 KiB to 1 GiB. Frames may be larger than the
  // ring.
  uint64_t to_server_bytes = 4 << 20, to_client_bytes = 4 << 20;
};

// The server's end makes the memory.
Result<std::unique_ptr<Transport>> shm_serve(Fd& socket, const ShmRings& rings,
                                             const ShmOptions& options, Deadline deadline);
// The client's end maps it.
Result<std::unique_ptr<Transport>> shm_join(Fd& socket, const ShmOptions& options,
                                            Deadline deadline);

}  // namespace fargpu::transport

// The Transport over a mapped segment and its sockets, at either end. Made by shm_serve and
// shm_join (shm.h).
#pragma once

#include <memory>

#include "common/transport/shm/shm.h"
#include "common/transport/shm/shm_segment.h"

namespace fargpu::transport {

enum class ShmEnd { kServer, kClient };

// An end's system resources, acquired before it agrees to the transport.
struct ShmParts {
  EventFd waker;
  Fd poller;  // epoll over the session's socket and the waker
  static Result<ShmParts> create(int session_socket);
};

std::unique_ptr<Transport> make_shm_transport(ShmEnd end, ShmSegment segment, Fd session, Fd room,
                                              ShmParts parts, const ShmOptions& options);

}  // namespace fargpu::transport

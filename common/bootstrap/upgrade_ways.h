// How each transport is made, once client and worker have agreed to try it. Used by the two halves
// of the conversation only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "common/base/status.h"
#include "common/bootstrap/upgrade.h"
#include "common/bootstrap/upgrade_messages.h"
#include "common/transport/tcp/stream.h"
#include "common/transport/transport.h"

namespace fargpu::bootstrap {

using MadeTransport = Result<std::unique_ptr<transport::Transport>>;

// Why an upgrade was taken, for people.
const char* reason_for(Upgrade upgrade);

// The session stays on its sockets: the first `frames` of them carry its frames, the others are the
// bulk connection.
Status stay(std::vector<Fd> sockets, size_t frames, const transport::StreamOptions& options,
            Upgraded& made);

// Close-on-exec.
Result<Fd> duplicate(int descriptor);

// shm over a connected unix socket on which nothing is under way.
MadeTransport shm_as_worker(Fd unix_socket, const transport::StreamOptions& options,
                            transport::Deadline deadline);
MadeTransport shm_as_client(Fd unix_socket, const transport::StreamOptions& options,
                            transport::Deadline deadline);

// Empty: this end has a usable RDMA port on the way to the other end of this connected socket.
// Otherwise why not.
std::string why_no_rdma(int socket);

// rdma: the worker listens where the client's connection arrived.
class RdmaListening {
 public:
  static Result<std::unique_ptr<RdmaListening>> open(int socket,
                                                     const transport::StreamOptions& options);
  virtual ~RdmaListening() = default;
  virtual UpgradeAnswer where() const = 0;
  // kTimeout: call again.
  virtual MadeTransport accept(transport::Deadline deadline) = 0;
};
// `stream`: the session's socket, kept to notice the peer's death.
MadeTransport rdma_as_client(Fd stream, const UpgradeAnswer& where,
                             const transport::StreamOptions& options, transport::Deadline deadline);

}  // namespace fargpu::bootstrap

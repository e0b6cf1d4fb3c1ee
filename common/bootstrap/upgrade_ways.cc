#include "common/bootstrap/upgrade_ways.h"

#include <fcntl.h>

#include <cerrno>

#include "common/transport/shm.h"

namespace fargpu::bootstrap {

const char* reason_for(Upgrade upgrade) {
  return upgrade == Upgrade::kShm ? "both ends are on one host" : "both ends have RDMA on the route between them";
}

Result<Fd> duplicate(int descriptor) {
  Fd copy(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) return system_error("cannot duplicate the session's socket", errno);
  return copy;
}

MadeTransport shm_as_worker(Fd unix_socket, const transport::StreamOptions& options, transport::Deadline deadline) {
  return transport::shm_serve(unix_socket, transport::ShmRings(), transport::shm_options(options), deadline);
}

MadeTransport shm_as_client(Fd unix_socket, const transport::StreamOptions& options, transport::Deadline deadline) {
  return transport::shm_join(unix_socket, transport::shm_options(options), deadline);
}

std::string why_no_rdma(int) { return "this build has no RDMA"; }

Result<std::unique_ptr<RdmaListening>> RdmaListening::open(int, const transport::StreamOptions&) {
  return Status(StatusCode::kUnsupported, "this build has no RDMA");
}

MadeTransport rdma_as_client(Fd, const UpgradeAnswer&, const transport::StreamOptions&, transport::Deadline) {
  return Status(StatusCode::kUnsupported, "this build has no RDMA");
}

}  // namespace fargpu::bootstrap

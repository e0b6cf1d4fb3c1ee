#include "common/bootstrap/upgrade_ways.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "common/base/descriptors.h"
#include "common/transport/rdma/rdma.h"
#include "common/transport/shm/shm.h"

namespace fargpu::bootstrap {

const char* reason_for(Upgrade upgrade) {
  return upgrade == Upgrade::kShm ? "both ends are on one host"
                                  : "both ends have RDMA on the route between them";
}

Status stay(std::vector<Fd> sockets, size_t frames, const transport::StreamOptions& options,
            Upgraded& made) {
  const auto begin = sockets.begin() + static_cast<std::ptrdiff_t>(frames);
  std::vector<Fd> further(std::make_move_iterator(begin), std::make_move_iterator(sockets.end()));
  sockets.erase(begin, sockets.end());
  FARGPU_ASSIGN_OR_RETURN(made.transport, transport::from_fds(std::move(sockets), options));
  if (further.empty()) return {};
  // Its reader is a thread that has nothing else to do, and bytes come in long runs.
  transport::StreamOptions of_bulk = options;
  of_bulk.spin = {};
  FARGPU_ASSIGN_OR_RETURN(made.bulk, transport::from_fds(std::move(further), std::move(of_bulk)));
  return {};
}

std::string Upgraded::describe() const {
  return transport->describe() + (bulk == nullptr ? "" : " with a bulk connection");
}

Result<Fd> duplicate(int descriptor) {
  Fd copy = descriptors::make([=] { return ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0); });
  if (!copy.valid()) return system_error("cannot duplicate the session's socket", errno);
  return copy;
}

MadeTransport shm_as_worker(Fd unix_socket, const transport::StreamOptions& options,
                            transport::Deadline deadline) {
  return transport::shm_serve(unix_socket, transport::ShmRings(), transport::shm_options(options),
                              deadline);
}

MadeTransport shm_as_client(Fd unix_socket, const transport::StreamOptions& options,
                            transport::Deadline deadline) {
  return transport::shm_join(unix_socket, transport::shm_options(options), deadline);
}

std::string why_no_rdma(int socket) {
  auto remote = transport::SocketAddress::remote_of(socket);
  if (!remote.ok()) return "the session does not go over a network";
  auto port = transport::probe_rdma_route(*remote, transport::Clock::now() + kStepTime);
  if (!port.ok()) return port.status().message();
  return port->active ? "" : port->text();
}

namespace {

class Listening final : public RdmaListening {
 public:
  Listening(int socket, std::unique_ptr<transport::RdmaAcceptor> acceptor)
      : socket_(socket), acceptor_(std::move(acceptor)) {}
  UpgradeAnswer where() const override {
    const transport::RdmaOffer offer = acceptor_->offer();
    UpgradeAnswer answer{.ok = true, .port = offer.port};
    answer.cookie.assign(offer.cookie.begin(), offer.cookie.end());
    return answer;
  }
  MadeTransport accept(transport::Deadline deadline) override {
    FARGPU_ASSIGN_OR_RETURN(Fd stream, duplicate(socket_));
    return acceptor_->accept(stream, deadline);
  }

 private:
  const int socket_;
  const std::unique_ptr<transport::RdmaAcceptor> acceptor_;
};

}  // namespace

Result<std::unique_ptr<RdmaListening>> RdmaListening::open(
    int socket, const transport::StreamOptions& options) {
  FARGPU_ASSIGN_OR_RETURN(const auto local, transport::SocketAddress::local_of(socket));
  FARGPU_ASSIGN_OR_RETURN(auto acceptor,
                          transport::RdmaAcceptor::listen(local, transport::rdma_options(options)));
  return std::unique_ptr<RdmaListening>(std::make_unique<Listening>(socket, std::move(acceptor)));
}

MadeTransport rdma_as_client(Fd stream, const UpgradeAnswer& where,
                             const transport::StreamOptions& options,
                             transport::Deadline deadline) {
  transport::RdmaOffer offer;
  offer.port = where.port;
  if (where.cookie.size() != offer.cookie.size())
    return Status(StatusCode::kProtocol, "the server's rdma cookie is malformed");
  std::copy(where.cookie.begin(), where.cookie.end(), offer.cookie.begin());
  FARGPU_ASSIGN_OR_RETURN(const auto remote, transport::SocketAddress::remote_of(stream.get()));
  return transport::rdma_connect(remote, offer, transport::rdma_options(options), stream, deadline);
}

}  // namespace fargpu::bootstrap

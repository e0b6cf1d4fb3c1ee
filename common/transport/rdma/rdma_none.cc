// The rdma transport of a build without the headers of rdma-core.
#include "common/transport/rdma/rdma.h"

namespace fargpu::transport {
namespace {

Status left_out() {
  return Status(
      StatusCode::kUnsupported,
      "this build of fargpu has no rdma (build it with libibverbs-dev and librdmacm-dev)");
}

}  // namespace

Result<std::unique_ptr<RdmaAcceptor>> RdmaAcceptor::listen(const SocketAddress&, RdmaOptions) {
  return left_out();
}
Result<std::unique_ptr<Transport>> rdma_connect(SocketAddress, const RdmaOffer&, RdmaOptions, Fd&,
                                                Deadline) {
  return left_out();
}
Result<RdmaPort> probe_rdma_route(const SocketAddress&, Deadline) { return left_out(); }
Result<RdmaPort> probe_rdma_local(const SocketAddress&) { return left_out(); }
Result<std::vector<RdmaPort>> list_rdma_ports() { return left_out(); }

}  // namespace fargpu::transport

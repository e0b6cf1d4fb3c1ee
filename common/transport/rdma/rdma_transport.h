// The Transport over a connected RdmaLink: the transport that rdma_connect() and
// RdmaAcceptor::accept() return. Inside the rdma transport only.
#pragma once

#include <memory>
#include <string>

#include "common/transport/rdma/rdma.h"
#include "common/transport/rdma/rdma_link.h"

namespace fargpu::transport {

// `ring` is the memory that the peer writes into. The link is connected.
std::unique_ptr<Transport> make_rdma_transport(std::shared_ptr<RdmaDomain> domain,
                                               std::unique_ptr<RdmaLink> link,
                                               std::unique_ptr<RdmaBuffer> ring,
                                               std::unique_ptr<RdmaBuffer> staging,
                                               const RdmaOptions& options, std::string description);

}  // namespace fargpu::transport

// Connected pairs over rdma, where this host has an RDMA device: inside the VM of scripts/rdma-vm,
// or on real hardware.
#pragma once

#include <optional>

#include "common/transport/rdma/rdma.h"
#include "tests/transport/transport_pairs.h"

namespace fargpu::test {

// An address of this host that an RDMA device serves; nothing when there is none. With
// FARGPU_TEST_REQUIRE_RDMA=1 it is a failure that there is none, so that a run which was made for
// rdma cannot pass without it.
std::optional<transport::SocketAddress> rdma_address(int family = AF_INET);
// Both ends use `options`, at rdma_address() or at the given one.
TransportPair make_rdma_pair(const transport::RdmaOptions& options,
                             std::optional<transport::SocketAddress> address = {});

// Both halves of a session that begins on a connected TCP socket, which stays its bootstrap: the
// server tells its offer there.
Result<std::unique_ptr<transport::Transport>> rdma_serve_over(
    Fd socket, const transport::RdmaOptions& options);
Result<std::unique_ptr<transport::Transport>> rdma_connect_over(
    Fd socket, const transport::RdmaOptions& options);

}  // namespace fargpu::test

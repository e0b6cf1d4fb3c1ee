// Connected pairs of every kind of transport, for the suites that all kinds must pass.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/transport/shm/shm.h"
#include "common/transport/tcp/stream.h"
#include "common/transport/transport.h"

namespace fargpu::test {

struct TransportPair {
  std::unique_ptr<transport::Transport> client;
  std::unique_ptr<transport::Transport> server;
};

struct TransportKind {
  std::string name;
  // Both ends use `options`.
  std::function<TransportPair(const transport::StreamOptions& options)> make;
};

// loopback, loopback without a descriptor, tcp, tcp with spinning, tcp over several connections,
// TLS, unix, shm, shm with spinning, some over an emulated link at both ends; rdma and rdma with
// spinning where there is a device (rdma_pairs.h).
std::vector<TransportKind> transport_kinds();
TransportPair make_tcp_pair(const transport::StreamOptions& options, size_t connections = 1);
TransportPair make_unix_pair(const transport::StreamOptions& options);
TransportPair make_shm_pair(const transport::StreamOptions& options,
                            const transport::ShmRings& rings = {});
// Both ends behind an emulated link, as FARGPU_LINK describes it.
TransportPair emulate_both(TransportPair pair, const std::string& link);
// The same as make_unix_pair, and the bare server end for tests that write bytes by hand.
std::pair<std::unique_ptr<transport::Transport>, Fd> make_unix_transport_and_socket(
    const transport::StreamOptions& options);

}  // namespace fargpu::test

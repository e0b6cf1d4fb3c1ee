#include "tests/transport/transport_pairs.h"

#include <sys/socket.h>

#include <thread>

#include "common/base/check.h"
#include "common/transport/link/emulated_link.h"
#include "common/transport/loopback/loopback.h"
#include "common/transport/tcp/tcp.h"
#include "tests/transport/rdma_pairs.h"
#include "tests/transport/tls_pairs.h"

namespace fargpu::test {
namespace {

using transport::Clock;
using transport::StreamOptions;

std::unique_ptr<transport::Transport> adopt(Fd socket, const StreamOptions& options) {
  auto made = transport::from_fd(std::move(socket), options);
  FARGPU_CHECK(made.ok());
  return std::move(*made);
}

TransportPair make_loopback(const StreamOptions& options, bool with_descriptor) {
  transport::LoopbackOptions loopback;
  loopback.limits = options.receive_limits;
  loopback.with_descriptor = with_descriptor;
  auto [client, server] = transport::make_loopback_pair(loopback);
  return {std::move(client), std::move(server)};
}

std::pair<Fd, Fd> socket_pair() {
  int ends[2];
  FARGPU_CHECK(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

}  // namespace

TransportPair make_tcp_pair(const StreamOptions& options, size_t connections) {
  auto listener = transport::TcpListener::open({"127.0.0.1", 0});
  FARGPU_CHECK(listener.ok());
  const auto deadline = Clock::now() + std::chrono::seconds(30);
  std::vector<Fd> clients, servers;
  for (size_t i = 0; i < connections; ++i) {
    auto client = transport::tcp_connect({"127.0.0.1", listener->port()}, deadline);
    FARGPU_CHECK(client.ok());
    auto server = listener->accept(deadline);
    FARGPU_CHECK(server.ok());
    clients.push_back(std::move(*client));
    servers.push_back(std::move(*server));
  }
  auto client = transport::from_fds(std::move(clients), options);
  auto server = transport::from_fds(std::move(servers), options);
  FARGPU_CHECK(client.ok() && server.ok());
  return {std::move(*client), std::move(*server)};
}

TransportPair make_unix_pair(const StreamOptions& options) {
  auto [client, server] = socket_pair();
  return {adopt(std::move(client), options), adopt(std::move(server), options)};
}

TransportPair make_shm_pair(const StreamOptions& options, const transport::ShmRings& rings) {
  auto sockets = socket_pair();
  const auto shm = transport::shm_options(options);
  const auto deadline = Clock::now() + std::chrono::seconds(30);
  TransportPair pair;
  std::thread joiner([&] {
    auto made = transport::shm_join(sockets.first, shm, deadline);
    FARGPU_CHECK(made.ok());
    pair.client = std::move(*made);
  });
  auto made = transport::shm_serve(sockets.second, rings, shm, deadline);
  joiner.join();
  FARGPU_CHECK(made.ok());
  pair.server = std::move(*made);
  return pair;
}

std::pair<std::unique_ptr<transport::Transport>, Fd> make_unix_transport_and_socket(
    const StreamOptions& options) {
  auto [client, server] = socket_pair();
  return {adopt(std::move(client), options), std::move(server)};
}

TransportPair emulate_both(TransportPair pair, const std::string& link) {
  const auto settings = transport::parse_link(link);
  FARGPU_CHECK(settings.ok());
  return {transport::emulate_link(std::move(pair.client), *settings),
          transport::emulate_link(std::move(pair.server), *settings)};
}

std::vector<TransportKind> transport_kinds() {
  std::vector<TransportKind> kinds = {
      {"loopback", [](const StreamOptions& options) { return make_loopback(options, true); }},
      {"loopback_no_descriptor",
       [](const StreamOptions& options) { return make_loopback(options, false); }},
      {"tcp", [](const StreamOptions& options) { return make_tcp_pair(options); }},
      {"tcp_two", [](const StreamOptions& options) { return make_tcp_pair(options, 2); }},
      {"tcp_sixteen_spinning",
       [](StreamOptions options) {
         options.spin = std::chrono::microseconds(200);
         return make_tcp_pair(options, 16);
       }},
      {"tcp_spinning",
       [](StreamOptions options) {
         options.spin = std::chrono::microseconds(200);
         return make_tcp_pair(options);
       }},
      {"tls", make_tls_pair},
      {"unix", make_unix_pair},
      {"shm", [](const StreamOptions& options) { return make_shm_pair(options); }},
      {"shm_spinning",
       [](StreamOptions options) {
         options.spin = std::chrono::microseconds(200);
         return make_shm_pair(options);
       }},
      {"loopback_emulated",
       [](const StreamOptions& options) {
         return emulate_both(make_loopback(options, true), "rtt=100us");
       }},
      {"tcp_emulated",
       [](const StreamOptions& options) {
         return emulate_both(make_tcp_pair(options), "bandwidth=4Gbps");
       }},
      {"shm_emulated",
       [](const StreamOptions& options) {
         return emulate_both(make_shm_pair(options), "rtt=50us,bandwidth=10Gbps");
       }},
  };
  if (rdma_address()) {
    kinds.push_back({"rdma", [](const StreamOptions& options) {
                       return make_rdma_pair(transport::rdma_options(options));
                     }});
    kinds.push_back({"rdma_spinning", [](StreamOptions options) {
                       options.spin = std::chrono::microseconds(200);
                       return make_rdma_pair(transport::rdma_options(options));
                     }});
  }
  return kinds;
}

}  // namespace fargpu::test

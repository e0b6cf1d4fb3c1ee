#include "tests/transport/rdma_pairs.h"

#include <ifaddrs.h>
#include <sys/socket.h>

#include <cstdio>
#include <thread>

#include "common/base/check.h"
#include "common/base/env.h"
#include "common/transport/poll.h"

namespace fargpu::test {

using transport::Clock;

std::optional<transport::SocketAddress> rdma_address(int family) {
  std::optional<transport::SocketAddress> found;
  std::string why = "no address of this host has an RDMA device";
  ifaddrs* list = nullptr;
  FARGPU_CHECK(::getifaddrs(&list) == 0);
  for (const ifaddrs* entry = list; entry != nullptr && !found; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family) continue;
    auto address = transport::SocketAddress::from(entry->ifa_addr);
    if (!address.ok() || address->host().starts_with("127.") || address->host() == "::1") continue;
    auto port = transport::probe_rdma_local(*address);
    if (port.ok() && port->active) {
      found = *address;
    } else {
      why = port.ok() ? port->text() : port.status().message();
    }
  }
  ::freeifaddrs(list);
  if (!found && *env_bool("FARGPU_TEST_REQUIRE_RDMA", false)) {
    std::fprintf(stderr, "FARGPU_TEST_REQUIRE_RDMA is set, but: %s\n", why.c_str());
    std::abort();
  }
  return found;
}

TransportPair make_rdma_pair(const transport::RdmaOptions& options,
                             std::optional<transport::SocketAddress> address) {
  if (!address) address = rdma_address();
  FARGPU_CHECK(address.has_value());
  const auto deadline = Clock::now() + std::chrono::seconds(30);
  auto acceptor = transport::RdmaAcceptor::listen(*address, options);
  if (!acceptor.ok()) std::fprintf(stderr, "%s\n", acceptor.status().message().c_str());
  FARGPU_CHECK(acceptor.ok());
  TransportPair pair;
  std::thread client([&, offer = (*acceptor)->offer()] {
    Fd none;
    auto made = transport::rdma_connect(*address, offer, options, none, deadline);
    if (!made.ok()) std::fprintf(stderr, "%s\n", made.status().message().c_str());
    FARGPU_CHECK(made.ok());
    pair.client = std::move(*made);
  });
  Fd none;
  auto made = (*acceptor)->accept(none, deadline);
  client.join();
  if (!made.ok()) std::fprintf(stderr, "%s\n", made.status().message().c_str());
  FARGPU_CHECK(made.ok());
  pair.server = std::move(*made);
  return pair;
}

Result<std::unique_ptr<transport::Transport>> rdma_serve_over(
    Fd socket, const transport::RdmaOptions& options) {
  FARGPU_ASSIGN_OR_RETURN(const auto local, transport::SocketAddress::local_of(socket.get()));
  FARGPU_ASSIGN_OR_RETURN(auto acceptor, transport::RdmaAcceptor::listen(local, options));
  const transport::RdmaOffer offer = acceptor->offer();
  if (::send(socket.get(), &offer, sizeof offer, MSG_NOSIGNAL) != sizeof offer)
    return Status(StatusCode::kLost, "cannot tell the offer");
  return acceptor->accept(socket, Clock::now() + std::chrono::seconds(30));
}

Result<std::unique_ptr<transport::Transport>> rdma_connect_over(
    Fd socket, const transport::RdmaOptions& options) {
  transport::RdmaOffer offer;
  pollfd entry{socket.get(), POLLIN, 0};  // the socket does not block by itself
  (void)transport::poll_until(std::span(&entry, 1), Clock::now() + std::chrono::seconds(30));
  if (::recv(socket.get(), &offer, sizeof offer, MSG_WAITALL) != sizeof offer)
    return Status(StatusCode::kLost, "no offer came");
  FARGPU_ASSIGN_OR_RETURN(const auto remote, transport::SocketAddress::remote_of(socket.get()));
  return transport::rdma_connect(remote, offer, options, socket,
                                 Clock::now() + std::chrono::seconds(30));
}

}  // namespace fargpu::test

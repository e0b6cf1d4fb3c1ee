#include "common/bootstrap/further_connections.h"

#include <fmt/core.h>
#include <kj/exception.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>

#include "common/bootstrap/greeting.h"
#include "common/transport/bulk_shares.h"
#include "common/wire/control.h"
#include "common/wire/slot_message.h"
#include "generated/schema/control.capnp.h"

namespace fargpu::bootstrap {
namespace {

// Where several connections help: see ConnectionsWish.
constexpr auto kFar = std::chrono::milliseconds(1);

// The shortest round trip that the kernel has seen on this connection; 0 when it is no TCP
// connection.
std::chrono::microseconds round_trip(int socket) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return {};
  return std::chrono::microseconds(info.tcpi_min_rtt == ~0u ? 0 : info.tcpi_min_rtt);
}

}  // namespace

Result<FurtherConnections> further_connections(int socket, const ServerAddress& server,
                                               const ConnectionsWish& wish,
                                               const wire::OpcodeSet& known,
                                               std::span<const std::byte> welcome_body) {
  try {
    wire::SegmentReader reader(welcome_body);
    const auto welcome = reader.getRoot<schema::Welcome>();
    FurtherConnections more;
    if (welcome.getConnections() <= 1) return more;
    SessionKey key;
    const auto shown = welcome.getSessionKey();
    if (shown.size() != key.size() || welcome.getConnections() > transport::kMaxConnections) {
      return Status(StatusCode::kProtocol,
                    "the server's offer of further connections is malformed");
    }
    std::copy(shown.begin(), shown.end(), reinterpret_cast<kj::byte*>(key.data()));
    more.most = welcome.getConnections();
    more.wanted = wish.plan(more.most, round_trip(socket) >= kFar, known.contains(wire::kLanded));
    more.get = [server, session = welcome.getSessionId(), key](size_t index,
                                                               transport::Deadline deadline) {
      return join_session(server, session, key, index, deadline);
    };
    return more;
  } catch (const kj::Exception&) {
    return Status(StatusCode::kProtocol, "the server's answer to the hello is malformed");
  }
}

Result<Fd> join_session(const ServerAddress& server, uint64_t session, const SessionKey& key,
                        size_t index, transport::Deadline deadline) {
  FARGPU_ASSIGN_OR_RETURN(Fd socket, connect_server(server, deadline));
  FARGPU_RETURN_IF_ERROR(
      greet_again(socket.get(), {session, key, static_cast<uint16_t>(index)}, deadline));
  return socket;
}

}  // namespace fargpu::bootstrap

// Further connections of a session that stays on TCP: large bulk is spread over several
// (transport/bulk_shares.h), and there is a bulk connection, whose frames no call waits for.
//
// The Welcome says how many a session may have and brings the session's key; a further connection
// begins with a Join that shows it. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "common/base/fd.h"
#include "common/bootstrap/connect.h"
#include "common/bootstrap/connections_wish.h"
#include "common/host/session_key.h"
#include "common/transport/transport.h"
#include "common/wire/opcode_set.h"

namespace fargpu::bootstrap {

// One end's view of them; the other end's is the same but for `wanted`.
struct FurtherConnections {
  // altogether, as the Welcome said; 1: there are none, and nothing is said about them
  size_t most = 1;
  ConnectionsPlan wanted{};  // the client's choice
  // Connection `index`, 1 to most - 1. The client opens it, the worker gets it from its daemon.
  std::function<Result<Fd>(size_t index, transport::Deadline deadline)> get{};
};

// The client's, after a Welcome on `socket`. `known`: the opcodes of the server. kProtocol:
// malformed.
Result<FurtherConnections> further_connections(int socket, const ServerAddress& server,
                                               const ConnectionsWish& wish,
                                               const wire::OpcodeSet& known,
                                               std::span<const std::byte> welcome_body);

// Opens one: connects and shows the key. kRefused: the server does not know the session, or the key
// is another one.
Result<Fd> join_session(const ServerAddress& server, uint64_t session, const SessionKey& key,
                        size_t index, transport::Deadline deadline);

}  // namespace fargpu::bootstrap

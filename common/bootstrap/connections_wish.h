// How many TCP connections a session may have: what FARGPU_TCP_CONNECTIONS says. A plain value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/base/status.h"
#include "common/bootstrap/transport_choice.h"

namespace fargpu::bootstrap {

// What the connections of a session are for. Its bulk connection (ADR 0053) may consist of several,
// over which bulk is spread.
struct ConnectionsPlan {
  size_t frames = 1;  // the session's socket, and those over which the bulk of its frames is spread
  size_t bulk = 0;    // the bulk connection; 0: there is none
};

struct ConnectionsWish {
  size_t connections = 0;  // over how many bulk is spread, 1 to kMaxConnections; 0: "auto"
  // What a hello asks for: none where a session cannot stay on TCP.
  uint16_t at_most(const TransportWish& transport = {}) const;
  // Of `most` connections, which the server gives. `far`: the round trip is long. `bulk`: the
  // server knows bulk connections.
  ConnectionsPlan plan(size_t most, bool far, bool bulk) const;
};
// "auto" (also ""), or a number; kInvalidArgument.
Result<ConnectionsWish> parse_connections(std::string_view text);

}  // namespace fargpu::bootstrap

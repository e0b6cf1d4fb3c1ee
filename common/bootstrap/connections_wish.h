// How many TCP connections a session may have: what FARGPU_TCP_CONNECTIONS says. A plain value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/base/status.h"
#include "common/bootstrap/transport_choice.h"

namespace fargpu::bootstrap {

struct ConnectionsWish {
  size_t connections = 0;  // 1 to kMaxConnections; 0: "auto"
  // What a hello asks for: none where a session cannot stay on TCP.
  uint16_t at_most(const TransportWish& transport = {}) const;
};
// "auto" (also ""), or a number; kInvalidArgument.
Result<ConnectionsWish> parse_connections(std::string_view text);

}  // namespace fargpu::bootstrap

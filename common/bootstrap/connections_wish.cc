#include "common/bootstrap/connections_wish.h"

#include <fmt/core.h>

#include "common/base/parse.h"
#include "common/transport/bulk_shares.h"

namespace fargpu::bootstrap {
namespace {

// A connection carries at most a window of bytes each round trip, so that several help where round
// trips are long. Figures: docs/results.md.
constexpr size_t kFarConnections = 4;

}  // namespace

uint16_t ConnectionsWish::at_most(const TransportWish& transport) const {
  if (transport.forced && !transport.upgrades.empty()) return 1;
  return static_cast<uint16_t>(connections == 0 ? kFarConnections : connections);
}

Result<ConnectionsWish> parse_connections(std::string_view text) {
  if (text.empty() || text == "auto") return ConnectionsWish{};
  const auto number = parse_integer(std::string(text));
  if (!number.ok() || *number == 0 || *number > transport::kMaxConnections) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("'{}' is neither auto nor a number from 1 to {}", text,
                              transport::kMaxConnections));
  }
  return ConnectionsWish{*number};
}

}  // namespace fargpu::bootstrap

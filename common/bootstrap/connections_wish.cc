#include "common/bootstrap/connections_wish.h"

#include <fmt/core.h>

#include <algorithm>

#include "common/base/parse.h"
#include "common/transport/bulk_shares.h"

namespace fargpu::bootstrap {
namespace {

// A connection carries at most a window of bytes each round trip, so that several help where round
// trips are long. Figures: docs/results.md.
constexpr size_t kFarConnections = 4;

}  // namespace

uint16_t ConnectionsWish::at_most(const TransportWish& transport) const {
  if (connections == 1 || (transport.forced && !transport.upgrades.empty())) return 1;
  const size_t spread = connections == 0 ? kFarConnections : connections;
  return static_cast<uint16_t>(std::min(2 * spread, transport::kMaxConnections));
}

ConnectionsPlan ConnectionsWish::plan(size_t most, bool far, bool bulk) const {
  const size_t near = far ? kFarConnections : 1;
  const size_t spread = connections == 0 ? near : connections;
  ConnectionsPlan plan;
  if (bulk && connections != 1) plan.bulk = std::min(spread, most / 2);
  plan.frames = std::min(spread, most - plan.bulk);
  return plan;
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

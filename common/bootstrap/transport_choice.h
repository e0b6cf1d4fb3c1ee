// Which transports a session may use: what FARGPU_TRANSPORT and --transport say. Plain values and
// pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace fargpu::bootstrap {

// A session begins on a stream socket; these take over from it.
enum class Upgrade { kShm, kRdma };

const char* to_string(Upgrade upgrade);
std::optional<Upgrade> parse_upgrade(std::string_view text);
// "shm,rdma"; "none" for an empty list.
std::string join(const std::vector<Upgrade>& upgrades);

struct TransportWish {
  std::vector<Upgrade> upgrades{Upgrade::kShm, Upgrade::kRdma};  // best first
  bool forced = false;  // one of `upgrades` or no session at all
};

// "auto" (also ""): the best there is; "tcp": the socket itself, be it TCP or unix; "shm", "rdma":
// that or an error.
Result<TransportWish> parse_wish(std::string_view text);

}  // namespace fargpu::bootstrap

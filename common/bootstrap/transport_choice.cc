#include "common/bootstrap/transport_choice.h"

#include <fmt/core.h>

namespace fargpu::bootstrap {

const char* to_string(Upgrade upgrade) { return upgrade == Upgrade::kShm ? "shm" : "rdma"; }

std::optional<Upgrade> parse_upgrade(std::string_view text) {
  if (text == "shm") return Upgrade::kShm;
  if (text == "rdma") return Upgrade::kRdma;
  return std::nullopt;
}

std::string join(const std::vector<Upgrade>& upgrades) {
  std::string text;
  for (const Upgrade upgrade : upgrades) {
    if (!text.empty()) text += ',';
    text += to_string(upgrade);
  }
  return text.empty() ? "none" : text;
}

Result<TransportWish> parse_wish(std::string_view text) {
  if (text.empty() || text == "auto") return TransportWish{};
  if (text == "tcp") return TransportWish{{}, true};
  if (const auto upgrade = parse_upgrade(text)) return TransportWish{{*upgrade}, true};
  return Status(StatusCode::kInvalidArgument,
                fmt::format("'{}' is no transport; use auto, shm, rdma or tcp", text));
}

}  // namespace fargpu::bootstrap

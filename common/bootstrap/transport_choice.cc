#include "common/bootstrap/transport_choice.h"

#include <fmt/core.h>

namespace fargpu::bootstrap {

const char* to_string(Upgrade upgrade) { return upgrade == Upgrade::kShm ? "shm" : "rdma"; }

std::optional<Upgrade> parse_upgrade(std::string_view text) {
  if (text == "shm") return Upgrade::kShm;
  if (text == "rdma") return Upgrade::kRdma;
  return std::nullopt;
}

std::vector<Upgrade> parse_upgrades(std::string_view text) {
  std::vector<Upgrade> upgrades;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    if (const auto upgrade = parse_upgrade(text.substr(0, comma))) upgrades.push_back(*upgrade);
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
  }
  return upgrades;
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

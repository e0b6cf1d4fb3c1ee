#include "client/settings/identities.h"

#include <fmt/core.h>

#include <charconv>
#include <map>
#include <set>

namespace fargpu::client {
namespace {

// The byte is zero in UUIDs of simulated GPUs, and random in those of real ones.
Uuid unused(Uuid uuid, const std::set<Uuid>& used) {
  constexpr size_t kByte = 13;
  while (used.contains(uuid)) {
    // Carries over: there may be more than 256 of them.
    for (size_t at = kByte; at < uuid.size() && ++uuid[at] == 0; ++at) {
    }
  }
  return uuid;
}

}  // namespace

void make_unique(std::vector<std::vector<Identity>>& servers) {
  std::set<Uuid> uuids;
  std::set<int> domains;
  for (std::vector<Identity>& devices : servers) {
    std::set<int> own;
    for (const Identity& device : devices) own.insert(device.domain);
    std::map<int, int> renamed;
    for (Identity& device : devices) {
      device.uuid = unused(device.uuid, uuids);
      uuids.insert(device.uuid);
      if (!domains.contains(device.domain)) continue;
      auto [found, first] = renamed.emplace(device.domain, 1);
      if (first) {
        while (domains.contains(found->second) || own.contains(found->second)) ++found->second;
        own.insert(found->second);
      }
      device.domain = found->second;
    }
    for (const Identity& device : devices) domains.insert(device.domain);
  }
}

std::string uuid_text(const Uuid& uuid) {
  std::string text = "GPU-";
  for (size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", uuid[i]);
  }
  return text;
}

std::optional<Uuid> parse_uuid(std::string_view text) {
  if (text.size() < 4 || text[3] != '-') return std::nullopt;
  Uuid uuid{};
  size_t at = 4;
  for (size_t i = 0; i < uuid.size(); ++i) {
    if (at < text.size() && text[at] == '-') ++at;
    if (at + 2 > text.size()) return std::nullopt;
    const char* const end = text.data() + at + 2;
    const auto read = std::from_chars(text.data() + at, end, uuid[i], 16);
    if (read.ptr != end) return std::nullopt;
    at += 2;
  }
  return at == text.size() ? std::optional(uuid) : std::nullopt;
}

}  // namespace fargpu::client

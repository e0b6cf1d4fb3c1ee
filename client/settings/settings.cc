#include "client/settings/settings.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>

#include "client/settings/fetch_mode.h"
#include "common/base/env.h"
#include "common/host/setting_file.h"
#include "common/transport/spin.h"

namespace fargpu::client {
namespace {

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    std::string_view part = text.substr(0, comma);
    while (!part.empty() && part.front() == ' ') part.remove_prefix(1);
    while (!part.empty() && part.back() == ' ') part.remove_suffix(1);
    parts.emplace_back(part);
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  return parts;
}

Result<Tokens> read_tokens(const std::string& servers) {
  // A list that makes no sense is refused where it is used.
  const auto list = bootstrap::split_servers(servers);
  const size_t count = list.ok() ? list->size() : 1;
  const auto from = [count](const std::string& where, std::string_view text) -> Result<Tokens> {
    auto tokens = Tokens::parse(text, count);
    if (!tokens.ok())
      return Status(tokens.status().code(), where + ": " + tokens.status().message());
    return tokens;
  };
  if (const auto text = env_text("FARGPU_TOKEN")) return from("FARGPU_TOKEN", *text);
  const auto path = env_text("FARGPU_TOKEN_FILE");
  if (!path) return Tokens();
  const auto text = setting_file(*path);
  if (!text.ok())
    return Status(text.status().code(), "FARGPU_TOKEN_FILE: " + text.status().message());
  return from("FARGPU_TOKEN_FILE: " + *path, *text);
}

Result<std::optional<transport::LinkSettings>> read_link() {
  const auto text = env_text("FARGPU_LINK");
  if (!text) return std::optional<transport::LinkSettings>();
  auto link = transport::parse_link(*text);
  if (!link.ok()) return Status(link.status().code(), "FARGPU_LINK: " + link.status().message());
  return std::optional(*link);
}

Result<uint64_t> number_between(const char* name, uint64_t least, uint64_t most,
                                uint64_t otherwise) {
  FARGPU_ASSIGN_OR_RETURN(const uint64_t number, env_integer(name, otherwise));
  if (env_text(name) && (number < least || number > most)) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{}: {} is not between {} and {}", name, number, least, most));
  }
  return number;
}

// -1: not a device.
int find_device(const std::string& entry, const std::vector<std::string>& uuids) {
  if (entry.empty()) return -1;
  if (std::all_of(entry.begin(), entry.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    const long ordinal = entry.size() > 6 ? -1 : std::strtol(entry.c_str(), nullptr, 10);
    return ordinal >= 0 && ordinal < static_cast<long>(uuids.size()) ? static_cast<int>(ordinal)
                                                                     : -1;
  }
  if (!entry.starts_with("GPU-") && !entry.starts_with("MIG-")) return -1;
  std::string lower = entry;
  std::transform(lower.begin() + 4, lower.end(), lower.begin() + 4,
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  int found = -1;
  for (size_t i = 0; i < uuids.size(); ++i) {
    if (!uuids[i].starts_with(lower)) continue;
    if (found >= 0) return -1;
    found = static_cast<int>(i);
  }
  return found;
}

}  // namespace

std::optional<std::string> visible_devices_now() {
  const char* const variable = std::getenv("CUDA_VISIBLE_DEVICES");
  return variable == nullptr ? std::nullopt : std::optional<std::string>(variable);
}

Result<Settings> read_settings() {
  Settings settings;
  settings.server = env_text("FARGPU_SERVER").value_or("");
  FARGPU_ASSIGN_OR_RETURN(settings.tokens, read_tokens(settings.server));
  FARGPU_ASSIGN_OR_RETURN(const uint64_t gpus, number_between("FARGPU_GPUS", 1, 1024, 0));
  settings.gpus = static_cast<uint32_t>(gpus);
  FARGPU_ASSIGN_OR_RETURN(settings.memory_bytes, env_bytes("FARGPU_MEMORY", 0));
  if (settings.memory_bytes == 0 && env_text("FARGPU_MEMORY"))
    return Status(StatusCode::kInvalidArgument, "FARGPU_MEMORY: 0 bytes are no memory");
  settings.devices = split(env_text("FARGPU_DEVICES").value_or(""));
  FARGPU_ASSIGN_OR_RETURN(settings.connect_timeout,
                          env_duration("FARGPU_CONNECT_TIMEOUT", settings.connect_timeout));
  FARGPU_ASSIGN_OR_RETURN(settings.watchdog,
                          env_duration("FARGPU_WATCHDOG", std::chrono::microseconds(0)));
  FARGPU_ASSIGN_OR_RETURN(settings.trace_records,
                          number_between("FARGPU_TRACE_RECORDS", 1, wire::kMostTimelineRecords,
                                         wire::kMostTimelineRecords));
  auto wish = bootstrap::parse_wish(env_text("FARGPU_TRANSPORT").value_or(""));
  if (!wish.ok())
    return Status(wish.status().code(), "FARGPU_TRANSPORT: " + wish.status().message());
  settings.transport = std::move(*wish);
  auto connections = bootstrap::parse_connections(env_text("FARGPU_TCP_CONNECTIONS").value_or(""));
  if (!connections.ok())
    return Status(connections.status().code(),
                  "FARGPU_TCP_CONNECTIONS: " + connections.status().message());
  settings.connections = *connections;
  FARGPU_ASSIGN_OR_RETURN(settings.spin,
                          transport::spin_from_environment(transport::SpinningEnd::kClient));
  FARGPU_ASSIGN_OR_RETURN(settings.link, read_link());
  auto compression = wire::parse_compression(env_text("FARGPU_COMPRESS").value_or(""));
  if (!compression.ok())
    return Status(compression.status().code(),
                  "FARGPU_COMPRESS: " + compression.status().message());
  settings.compression = *compression;
  FARGPU_ASSIGN_OR_RETURN(settings.sync_all, env_bool("FARGPU_SYNC", false));
  FARGPU_ASSIGN_OR_RETURN(settings.zero_copy, env_bool("FARGPU_ZERO_COPY", true));
  FARGPU_RETURN_IF_ERROR(env_bool("FARGPU_REPORT_WHERE", false).status());
  FARGPU_RETURN_IF_ERROR(number_between("FARGPU_COPY_THREADS", 1, 64, 0).status());
  settings.visible_devices = visible_devices_now();
  if (const auto mode = read_managed_mode(); !mode.ok()) return mode.status();
  if (const auto mode = read_mapped_mode(); !mode.ok()) return mode.status();
  return settings;
}

std::vector<int> visible_ordinals(const std::optional<std::string>& variable,
                                  const std::vector<std::string>& uuids) {
  std::vector<int> ordinals;
  if (!variable) {
    for (size_t i = 0; i < uuids.size(); ++i) ordinals.push_back(static_cast<int>(i));
    return ordinals;
  }
  for (const std::string& entry : split(*variable)) {
    const int ordinal = find_device(entry, uuids);
    if (ordinal < 0) break;
    if (std::find(ordinals.begin(), ordinals.end(), ordinal) != ordinals.end()) return {};
    ordinals.push_back(ordinal);
  }
  return ordinals;
}

}  // namespace fargpu::client

#include "server/daemon/config.h"

#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <toml.hpp>

#include "common/base/log.h"
#include "common/base/parse.h"
#include "common/bootstrap/connect.h"
#include "common/transport/bulk_shares.h"
#include "server/job/image_files.h"

namespace fargpu::server {
namespace {

Status wrong(const toml::value& value, const std::string& name, const std::string& key,
             const std::string& expected) {
  return {StatusCode::kInvalidArgument,
          fmt::format("{}:{}: {} must be {}", name, value.location().line(), key, expected)};
}

// One key's way from TOML into the configuration.
struct Key {
  std::function<bool(const toml::value&)> apply;
  const char* expected;
};

Key text(std::string& target) {
  return {[&target](const toml::value& value) {
            if (!value.is_string()) return false;
            target = value.as_string().str;
            return true;
          },
          "a text in quotes"};
}

template <typename T>
Key number(T& target, int64_t least, int64_t most, const char* expected) {
  return {[&target, least, most](const toml::value& value) {
            if (!value.is_integer() || value.as_integer() < least || value.as_integer() > most)
              return false;
            target = static_cast<T>(value.as_integer());
            return true;
          },
          expected};
}

template <typename T>
Key number(std::optional<T>& target, int64_t least, int64_t most, const char* expected) {
  return {[&target, least, most](const toml::value& value) {
            T read{};
            if (!number(read, least, most, "").apply(value)) return false;
            target = read;
            return true;
          },
          expected};
}

Key mode(uint32_t& target) {
  return {[&target](const toml::value& value) {
            const auto parsed = value.is_string() ? parse_mode(value.as_string().str)
                                                  : Status(StatusCode::kInvalidArgument, "");
            if (parsed.ok()) target = *parsed;
            return parsed.ok();
          },
          "permissions like \"0660\", in quotes"};
}

Key yes_or_no(bool& target) {
  return {[&target](const toml::value& value) {
            if (!value.is_boolean()) return false;
            target = value.as_boolean();
            return true;
          },
          "true or false"};
}

template <typename T>
Key bytes(T& target, uint64_t least, uint64_t most) {
  return {[&target, least, most](const toml::value& value) {
            uint64_t amount = 0;
            if (value.is_integer() && value.as_integer() >= 0) {
              amount = static_cast<uint64_t>(value.as_integer());
            } else if (value.is_string()) {
              auto parsed = parse_bytes(value.as_string().str);
              if (!parsed.ok()) return false;
              amount = *parsed;
            } else {
              return false;
            }
            if (amount < least || amount > most) return false;
            target = static_cast<T>(amount);
            return true;
          },
          "a size like \"512M\" or \"8G\", within its limits"};
}

template <typename D>
Key duration(D& target) {
  return {[&target](const toml::value& value) {
            if (value.is_integer() && value.as_integer() >= 0 && value.as_integer() <= 86400) {
              target = std::chrono::seconds(value.as_integer());
              return true;
            }
            if (!value.is_string()) return false;
            auto parsed = parse_duration(value.as_string().str);
            if (!parsed.ok() || *parsed > std::chrono::hours(24)) return false;
            target = std::chrono::duration_cast<D>(*parsed);
            return true;
          },
          "a time like 5, \"500ms\" or \"30s\", at most a day"};
}

Key text_list(std::vector<std::string>& target) {
  return {[&target](const toml::value& value) {
            std::vector<std::string> list;
            if (value.is_string()) {
              list.push_back(value.as_string().str);
            } else if (value.is_array()) {
              for (const toml::value& item : value.as_array()) {
                if (!item.is_string()) return false;
                list.push_back(item.as_string().str);
              }
            } else {
              return false;
            }
            target = std::move(list);
            return true;
          },
          "a text, or a list of texts like [\"0.0.0.0:14900\", \"/run/fargpud/socket\"]"};
}

Key transports(std::vector<bootstrap::Upgrade>& target) {
  return {[&target](const toml::value& value) {
            if (!value.is_array()) return false;
            std::vector<bootstrap::Upgrade> list;
            for (const toml::value& item : value.as_array()) {
              const auto upgrade =
                  item.is_string() ? bootstrap::parse_upgrade(item.as_string().str) : std::nullopt;
              if (!upgrade) return false;
              list.push_back(*upgrade);
            }
            target = std::move(list);
            return true;
          },
          "a list of \"shm\" and \"rdma\"; it may be empty"};
}

std::map<std::string, Key> keys_of(DaemonConfig& c) {
  return {
      {"listen", text_list(c.listen)},
      {"socket-mode", mode(c.socket_mode)},
      {"driver", text(c.driver)},
      {"sim-gpus", number(c.sim_gpus, 1, 16, "a number from 1 to 16")},
      {"sim-memory", text(c.sim_memory)},
      {"sim-compute-capability", text(c.sim_compute_capability)},
      {"sim-slot", number(c.sim_slot, 0, 31, "a number from 0 to 31")},
      {"token-file", text(c.token_file)},
      {"tls-cert", text(c.tls_cert)},
      {"tls-key", text(c.tls_key)},
      {"runtime-dir", text(c.runtime_dir)},
      {"cache-dir", text(c.cache_dir)},
      {"port-file", text(c.port_file)},
      {"log-level", text(c.log_level)},
      {"max-sessions", number(c.placement.max_sessions, 1, 65535, "a number from 1 to 65535")},
      {"max-sessions-per-tenant",
       number(c.max_sessions_per_tenant, 0, 65535, "a number from 0 to 65535")},
      {"max-sessions-per-gpu",
       number(c.placement.max_sessions_per_gpu, 1, 65535, "a number from 1 to 65535")},
      {"oversubscribe-memory", yes_or_no(c.placement.oversubscribe_memory)},
      {"worker-open-files",
       number(c.worker.open_files, 256, 1 << 20, "a number from 256 to 1048576")},
      {"worker-oom-score", number(c.worker.oom_score, 0, 1000, "a number from 0 to 1000")},
      {"worker-core-dumps", yes_or_no(c.worker.core_dumps)},
      {"workers-ahead", number(c.workers_ahead, 0, 64, "a number from 0 to 64")},
      {"worker-start", duration(c.worker_start)},
      {"silent-worker", duration(c.silent_worker)},
      {"lost-client", duration(c.lost_client)},
      {"job-grace", duration(c.job_grace)},
      {"max-memory-per-job", bytes(c.max_memory_per_job, 0, UINT64_MAX)},
      {"memory-per-job", bytes(c.memory_per_job, 0, UINT64_MAX)},
      {"memory-per-session", bytes(c.memory_per_session, 0, UINT64_MAX)},  // an older name
      {"host-memory-per-session", bytes(c.host_memory_per_session, 0, UINT64_MAX)},
      {"max-ptx", bytes(c.max_ptx_bytes, 0, UINT64_MAX)},
      {"max-frame", bytes(c.frame.max_body_bytes, 64u << 10, 1u << 30)},
      {"max-bulk", bytes(c.frame.max_bulk_bytes, 64u << 10, 1u << 30)},
      {"image-cache", bytes(c.image_cache_bytes, 1u << 20, UINT64_MAX)},
      {"image-tenants", number(c.image_tenants, 1, 1024, "a number from 1 to 1024")},
      {"max-handshakes", number(c.max_handshakes, 1, 65536, "a number from 1 to 65536")},
      {"hello-deadline", duration(c.hello_deadline)},
      {"drain", duration(c.drain)},
      {"transports", transports(c.transports)},
      {"tcp-connections",
       number(c.tcp_connections, 1, static_cast<int64_t>(transport::kMaxConnections),
              "a number from 1 to 16")},
  };
}

std::string image_folder(const DaemonConfig& config) {
  if (!config.cache_dir.empty()) return config.cache_dir;
  const char* const systemd = std::getenv("CACHE_DIRECTORY");
  return systemd != nullptr && *systemd != '\0' ? systemd : "/var/tmp";
}

constexpr uint64_t kMostImages = 4096;  // of a tenant

}  // namespace

std::vector<std::string> default_listen(const DaemonConfig& config) {
  return {config.token_file.empty() ? "127.0.0.1:14900" : "0.0.0.0:14900"};
}

std::vector<std::pair<std::string, std::string>> driver_environment(const DaemonConfig& config) {
  std::vector<std::pair<std::string, std::string>> result;
  if (config.sim_gpus != 0) result.emplace_back("FARGPU_SIM_GPUS", std::to_string(config.sim_gpus));
  if (!config.sim_memory.empty()) result.emplace_back("FARGPU_SIM_MEMORY", config.sim_memory);
  if (!config.sim_compute_capability.empty()) {
    result.emplace_back("FARGPU_SIM_COMPUTE_CAPABILITY", config.sim_compute_capability);
  }
  if (config.sim_slot) result.emplace_back("FARGPU_SIM_SLOT", std::to_string(*config.sim_slot));
  if (!config.sim_shared.empty()) result.emplace_back("FARGPU_SIM_SHARED", config.sim_shared);
  if (!config.log_level.empty()) result.emplace_back("FARGPU_LOG", config.log_level);
  return result;
}

ImageBroker::Rules image_rules(const DaemonConfig& config) {
  std::string folder = image_folder(config);
  if (const Status usable = try_image_files(folder); !usable.ok()) {
    log::warn("event=no-images-kept why=\"{}\" remedy=\"--cache-dir names another folder\"",
              usable.message());
    folder.clear();
  }
  // Each is a descriptor of the daemon, which needs some for other things.
  rlimit files{};
  (void)::getrlimit(RLIMIT_NOFILE, &files);
  const uint64_t most = std::min<uint64_t>(kMostImages, files.rlim_cur / 4 / config.image_tenants);
  return {std::move(folder), config.image_cache_bytes, static_cast<uint32_t>(most),
          config.image_tenants};
}

bool is_for_other_machines(const std::string& where) {
  const auto endpoint = parse_endpoint(where, 0);
  if (bootstrap::socket_path(where) || !endpoint.ok()) return false;
  const std::string& host = endpoint->host;
  return host != "localhost" && host != "::1" && !host.starts_with("127.");
}

Result<uint32_t> parse_mode(const std::string& text) {
  uint32_t mode = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), mode, 8);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || mode > 0777)
    return Status(StatusCode::kInvalidArgument, "'" + text + "': expected permissions like 0660");
  return mode;
}

Status parse_config(const std::string& text, const std::string& name, DaemonConfig& config) {
  DaemonConfig next = config;
  toml::value root;
  try {
    std::istringstream stream(text);
    root = toml::parse(stream, name);
  } catch (const toml::exception& error) {
    return {StatusCode::kInvalidArgument,
            fmt::format("{}:{}: not valid TOML; expected lines like listen = \"0.0.0.0:14900\"",
                        name, error.location().line())};
  } catch (const std::exception& error) {
    return {StatusCode::kInvalidArgument,
            fmt::format("{}: not valid TOML: {}", name, error.what())};
  }
  const auto keys = keys_of(next);
  for (const auto& [key, value] : root.as_table()) {
    const auto known = keys.find(key);
    if (known == keys.end()) {
      return {StatusCode::kInvalidArgument,
              fmt::format("{}:{}: unknown key '{}'; the sample configuration lists all keys", name,
                          value.location().line(), key)};
    }
    if (!known->second.apply(value)) return wrong(value, name, key, known->second.expected);
  }
  config = std::move(next);
  return Status();
}

Status load_config(const std::string& path, DaemonConfig& config) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    // An empty file also sets failbit on insertion: nothing was read, and nothing was wrong.
    if (file.is_open() && file.peek() == std::ifstream::traits_type::eof() && !file.bad())
      return Status();
    return {StatusCode::kInvalidArgument,
            fmt::format("cannot read the configuration file {}: {}", path, std::strerror(errno))};
  }
  return parse_config(text.str(), path, config);
}

Status check_config(const DaemonConfig& config) {
  if (config.placement.max_sessions == 0 || config.placement.max_sessions_per_gpu == 0) {
    return {StatusCode::kInvalidArgument,
            "max-sessions and max-sessions-per-gpu must be at least 1"};
  }
  if (config.frame.max_body_bytes < (64u << 10) || config.frame.max_body_bytes > (1u << 30)) {
    return {StatusCode::kInvalidArgument,
            fmt::format("max-frame is {} bytes; it must be between 64K and 1G",
                        config.frame.max_body_bytes)};
  }
  if (config.frame.max_bulk_bytes < (64u << 10) ||
      config.frame.max_bulk_bytes > (uint64_t{1} << 30)) {
    return {StatusCode::kInvalidArgument,
            fmt::format("max-bulk is {} bytes; it must be between 64K and 1G",
                        config.frame.max_bulk_bytes)};
  }
  if (config.tls_cert.empty() != config.tls_key.empty()) {
    return {StatusCode::kInvalidArgument,
            "tls-cert and tls-key belong together: give both or none"};
  }
  if (config.max_memory_per_job != 0 && config.memory_per_job > config.max_memory_per_job) {
    return {StatusCode::kInvalidArgument,
            "memory-per-job is more than max-memory-per-job, which no job may pass"};
  }
  if (config.hello_deadline.count() <= 0) {
    return {StatusCode::kInvalidArgument, "hello-deadline must be longer than zero"};
  }
  if (!config.sim_memory.empty()) {
    if (auto size = parse_bytes(config.sim_memory); !size.ok()) {
      return {StatusCode::kInvalidArgument, "sim-memory: " + size.status().message()};
    }
  }
  for (const std::string& where : config.listen) {
    if (where.empty() || bootstrap::socket_path(where)) continue;
    if (auto endpoint = parse_endpoint(where, 0); !endpoint.ok()) {
      return {StatusCode::kInvalidArgument, "listen: " + endpoint.status().message()};
    }
  }
  return Status();
}

}  // namespace fargpu::server

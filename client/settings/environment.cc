#include "client/settings/environment.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "common/base/since_load.h"
#include "common/bootstrap/connect.h"
#include "common/host/host_identity.h"
#include "common/host/setting_file.h"
#include "common/tls/authorities.h"

namespace fargpu::client {
namespace {

constexpr const char* kFiles[] = {"FARGPU_TOKEN_FILE", "FARGPU_TLS_CA", "FARGPU_LOG_FILE"};
constexpr const char* kFilesOrSwitches[] = {"FARGPU_TRACE", "FARGPU_REPORT"};  // also 0 and 1

std::string absolute(const std::string& path) {
  std::error_code error;
  auto made = std::filesystem::absolute(path, error);
  return error || path.empty() ? path : made.lexically_normal().string();
}

std::string absolute_sockets(const std::string& servers) {
  std::string made;
  for (size_t begin = 0; begin <= servers.size();) {
    const size_t end = std::min(servers.find(',', begin), servers.size());
    std::string server = servers.substr(begin, end - begin);
    server.erase(0, server.find_first_not_of(' '));
    const auto path = bootstrap::socket_path(server);
    if (path && !path->starts_with('/')) {
      const std::string whole = absolute(*path);
      if (bootstrap::parse_server(whole).ok()) server = whole;
    }
    made += (begin == 0 ? "" : ",") + server;
    begin = end + 1;
  }
  return made;
}

// What connecting to these servers reads from files.
void keep_files(const OwnVariables& variables) {
  const auto text_of = [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  };
  const std::string servers = text_of("FARGPU_SERVER");
  if (servers.empty()) return;
  if (text_of("FARGPU_TOKEN").empty() && !text_of("FARGPU_TOKEN_FILE").empty())
    keep_setting_file(text_of("FARGPU_TOKEN_FILE"));
  if (servers.find("tls://") == std::string::npos) return;
  if (const std::string authorities = text_of("FARGPU_TLS_CA"); !authorities.empty()) {
    keep_setting_file(authorities);
  } else {
    tls::keep_system_authorities();
  }
}

}  // namespace

OwnVariables with_absolute_paths(OwnVariables variables) {
  const auto change = [&](const char* name, auto&& changed) {
    const auto found = variables.find(name);
    if (found != variables.end() && !found->second.empty()) found->second = changed(found->second);
  };
  for (const char* name : kFiles) change(name, absolute);
  for (const char* name : kFilesOrSwitches) {
    change(name, [](const std::string& value) {
      return value == "0" || value == "1" ? value : absolute(value);
    });
  }
  change("FARGPU_SERVER", absolute_sockets);
  return variables;
}

Status export_absolute_paths() {
  const OwnVariables now = own_variables_now();
  for (const auto& [name, value] : with_absolute_paths(now)) {
    if (value != now.at(name) && ::setenv(name.c_str(), value.c_str(), 1) != 0)
      return system_error("cannot set " + name, errno);
  }
  return Status();
}

void take_environment() {
  remember_process();
  OwnVariables now = own_variables_now();
  // A program may clear its environment before it loads the library.
  if (now.empty()) now = own_variables_of_the_start();
  OwnVariables variables = with_absolute_paths(std::move(now));
  keep_files(variables);
  if (!variables["FARGPU_SERVER"].empty()) (void)bootstrap::host_identity();
  keep_own_variables(std::move(variables));
}

}  // namespace fargpu::client

#include "client/settings/environment.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "common/base/descriptors.h"
#include "common/bootstrap/connect.h"
#include "common/bootstrap/host_identity.h"

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

// The first line of an ordinary file.
std::string token_in(const char* path) {
  const Fd file = descriptors::open_file(path, O_RDONLY | O_NONBLOCK);
  struct stat about {};
  char text[4096];
  if (!file.valid() || ::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode)) return {};
  const ssize_t got = ::pread(file.get(), text, sizeof text, 0);
  if (got <= 0) return {};
  std::string_view line(text, static_cast<size_t>(got));
  const size_t end = line.find('\n');
  if (end == std::string_view::npos && line.size() == sizeof text) return {};
  line = line.substr(0, end);
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
  return std::string(line);
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
  OwnVariables variables = with_absolute_paths(own_variables_now());
  const auto file = variables.find("FARGPU_TOKEN_FILE");
  if (file != variables.end() && variables["FARGPU_TOKEN"].empty())
    variables["FARGPU_TOKEN"] = token_in(file->second.c_str());
  if (!variables["FARGPU_SERVER"].empty()) (void)bootstrap::host_identity();
  keep_own_variables(std::move(variables));
}

}  // namespace fargpu::client

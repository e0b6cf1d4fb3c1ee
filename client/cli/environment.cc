#include "client/cli/environment.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "client/process/gpu_tools.h"
#include "client/program/layout.h"
#include "client/program/program_file.h"
#include "client/settings/environment.h"
#include "common/base/env.h"
#include "common/base/kept_environment.h"
#include "common/base/parse.h"
#include "common/bootstrap/connect.h"

namespace fargpu::cli {

namespace {

Status set(const char* name, const std::string& value) {
  if (::setenv(name, value.c_str(), 1) != 0)
    return system_error(std::string("cannot set ") + name, errno);
  return {};
}

// "value" or "value:before".
std::string prepend(const std::string& value, const char* variable) {
  const char* before = std::getenv(variable);
  return before != nullptr && *before != 0 ? value + ":" + before : value;
}

// Whether export_server() set the variable.
bool token_file_by_flag = false, tls_ca_by_flag = false;

Status check_readable(const std::string& name, const std::string& path) {
  struct stat about {};
  int error = ::access(path.c_str(), R_OK) == 0 ? 0 : errno;
  if (error == 0 && ::stat(path.c_str(), &about) == 0 && S_ISDIR(about.st_mode)) error = EISDIR;
  return error == 0 ? Status() : system_error(name + ": cannot read '" + path + "'", error);
}

// How many letters must be changed, added or left out, at least.
size_t edits_between(std::string_view one, std::string_view other) {
  std::vector<size_t> row(other.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < one.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < other.size(); ++j) {
      const size_t changed = diagonal + (one[i] == other[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

// A variable of another name may be somebody else's, unless it looks like one of ours.
void warn_of_misspelt_settings() {
  std::istringstream text(FARGPU_SETTINGS);
  const std::set<std::string> settings{std::istream_iterator<std::string>(text), {}};
  for (const auto& [name, value] : own_variables_now()) {
    if (settings.contains(name)) continue;
    // Short names are near to many.
    const size_t most = std::min<size_t>(2, (name.size() - sizeof "FARGPU_" + 1) / 3);
    const auto near = std::ranges::find_if(settings, [&, &own = name](const std::string& setting) {
      return edits_between(own, setting) <= most;
    });
    if (near != settings.end()) {
      std::fprintf(stderr, "fargpu: %s is no setting of fargpu; is %s meant?\n", name.c_str(),
                   near->c_str());
    }
  }
}

Status in_flag(const char* flag, const Status& status) {
  return status.ok() ? status : Status(status.code(), std::string(flag) + ": " + status.message());
}

}  // namespace

Status export_server(const ServerOptions& options) {
  warn_of_misspelt_settings();
  if (!options.server.empty()) {
    FARGPU_RETURN_IF_ERROR(in_flag("--server", bootstrap::split_servers(options.server).status()));
    FARGPU_RETURN_IF_ERROR(set("FARGPU_SERVER", options.server));
  }
  const char* server = std::getenv("FARGPU_SERVER");
  if (options.tls && server != nullptr && *server != '\0') {
    auto servers = bootstrap::split_servers(server);
    FARGPU_RETURN_IF_ERROR(in_flag("--tls", servers.status()));
    std::string encrypted;
    for (const std::string& address : *servers) {
      if (bootstrap::socket_path(address)) {
        return Status(StatusCode::kInvalidArgument,
                      "--tls: '" + address + "' is a socket of this host; TLS is for HOST:PORT");
      }
      encrypted += encrypted.empty() ? "" : ",";
      encrypted += address.starts_with("tls://") ? address : "tls://" + address;
    }
    FARGPU_RETURN_IF_ERROR(set("FARGPU_SERVER", encrypted));
  }
  if (!options.tls_ca.empty()) {
    FARGPU_RETURN_IF_ERROR(check_readable("--tls-ca", options.tls_ca));
    FARGPU_RETURN_IF_ERROR(set("FARGPU_TLS_CA", options.tls_ca));
    tls_ca_by_flag = true;
  }
  if (!options.token_file.empty()) {
    FARGPU_RETURN_IF_ERROR(check_readable("--token-file", options.token_file));
    FARGPU_RETURN_IF_ERROR(set("FARGPU_TOKEN_FILE", options.token_file));
    ::unsetenv("FARGPU_TOKEN");  // the flag wins
    token_file_by_flag = true;
  }
  if (!options.transport.empty())
    FARGPU_RETURN_IF_ERROR(set("FARGPU_TRANSPORT", options.transport));
  return client::export_absolute_paths();
}

Status check_files() {
  const auto token_file = env_text("FARGPU_TOKEN_FILE");
  if (token_file && !token_file_by_flag && !env_text("FARGPU_TOKEN"))
    FARGPU_RETURN_IF_ERROR(check_readable("FARGPU_TOKEN_FILE", *token_file));
  const auto authorities = env_text("FARGPU_TLS_CA");
  const bool encrypted = env_text("FARGPU_SERVER").value_or("").find("tls://") != std::string::npos;
  return authorities && !tls_ca_by_flag && encrypted ? check_readable("FARGPU_TLS_CA", *authorities)
                                                     : Status();
}

Status as_given(const Status& status) {
  constexpr std::string_view kVariable = "FARGPU_TOKEN_FILE: ";
  if (!token_file_by_flag || !status.message().starts_with(kVariable)) return status;
  return {status.code(), "--token-file: " + status.message().substr(kVariable.size())};
}

Status check_tools(const std::string& program) {
  for (const std::string& tool :
       {client::gpu_tool_of_program(program), client::gpu_tool_of_environment()}) {
    // What CUDA_INJECTION64_PATH names may be anything: the library says that it has no effect.
    if (!client::gpu_tool_of_program(tool).empty())
      return {StatusCode::kInvalidArgument, client::refusal_of_gpu_tool(tool)};
  }
  return {};
}

Status export_session(const SessionOptions& options) {
  if (!options.gpus.empty()) {
    auto count = parse_integer(options.gpus);
    FARGPU_RETURN_IF_ERROR(in_flag("--gpus", count.status()));
    if (*count == 0 || *count > 1024)
      return Status(StatusCode::kInvalidArgument,
                    "--gpus: not between 1 and 1024: " + options.gpus);
    FARGPU_RETURN_IF_ERROR(set("FARGPU_GPUS", options.gpus));
  }
  if (!options.memory.empty()) {
    FARGPU_RETURN_IF_ERROR(in_flag("--memory", parse_bytes(options.memory).status()));
    FARGPU_RETURN_IF_ERROR(set("FARGPU_MEMORY", options.memory));
  }
  if (!options.devices.empty()) {
    std::string list;
    for (const std::string& device : options.devices) list += (list.empty() ? "" : ",") + device;
    FARGPU_RETURN_IF_ERROR(set("FARGPU_DEVICES", list));
  }
  // "true" is CLI11's value of a flag that was given without one.
  if (!options.report.empty())
    FARGPU_RETURN_IF_ERROR(set("FARGPU_REPORT", options.report == "true" ? "1" : options.report));
  if (options.where) FARGPU_RETURN_IF_ERROR(set("FARGPU_REPORT_WHERE", "1"));
  return client::export_absolute_paths();
}

Status export_library(const std::string& program, Preload preload) {
  FARGPU_ASSIGN_OR_RETURN(std::string folder, client_library_folder());
  FARGPU_RETURN_IF_ERROR(set("LD_LIBRARY_PATH", prepend(folder, "LD_LIBRARY_PATH")));
  if (preload == Preload::kNever) return {};
  // Once loaded under its soname, every later dlopen("libcuda.so.1") gets it, whatever the paths
  // say. Few programs use NVML: it is loaded where an RPATH would lead to another one.
  constexpr const char* kNvml = "libnvidia-ml.so.1";
  const bool always = preload == Preload::kAlways;
  std::string libraries;
  if (always || has_rpath(program)) libraries = folder + "/libcuda.so.1";
  if (always || rpath_leads_to(program, kNvml)) libraries += ":" + folder + "/" + kNvml;
  if (!libraries.empty())
    FARGPU_RETURN_IF_ERROR(set("LD_PRELOAD", prepend(libraries, "LD_PRELOAD")));
  return {};
}

}  // namespace fargpu::cli

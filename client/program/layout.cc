#include "client/program/layout.h"

#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string_view>

namespace fargpu::cli {

namespace fs = std::filesystem;

namespace {

constexpr const char* kBuildFolder = "../lib/fargpu";

// A program that lies in the folder of this one. `needs`, `advice`: what the error says around it.
Result<std::string> executable_beside(const char* name, const std::string& needs,
                                      const std::string& advice = "") {
  FARGPU_ASSIGN_OR_RETURN(const std::string self, own_path());
  const fs::path path = fs::path(self).parent_path() / name;
  if (::access(path.c_str(), X_OK) == 0) return path.string();
  return Status(StatusCode::kNotFound,
                needs + ", but there is no executable " + path.string() + advice);
}

}  // namespace

Result<std::string> own_path() {
  std::error_code error;
  fs::path path = fs::read_symlink("/proc/self/exe", error);
  if (error)
    return system_error("cannot find out where this program lies (/proc/self/exe)", error.value());
  return path.string();
}

Result<std::string> client_library_folder() {
  FARGPU_ASSIGN_OR_RETURN(const std::string self, own_path());
  const fs::path here = fs::path(self).parent_path();
  for (const char* below : {FARGPU_LIBRARY_FOLDER, kBuildFolder}) {
    const fs::path folder = (here / below).lexically_normal();
    std::error_code error;
    if (fs::exists(folder / "libcuda.so.1", error)) return folder.string();
  }
  return Status(StatusCode::kNotFound,
                "the client library is missing: no libcuda.so.1 in " +
                    (here / FARGPU_LIBRARY_FOLDER).lexically_normal().string() +
                    "; build the target fargpu-client or repair the installation");
}

Result<std::string> daemon_path() {
  return executable_beside("fargpud", "--sim needs the daemon",
                           "; install the components server and sim");
}

Result<std::string> measure_path() {
  return executable_beside("fargpu-measure", "`fargpu bench` needs fargpu-measure",
                           "; repair the installation");
}

Result<std::string> find_program(const std::string& command) {
  if (command.find('/') != std::string::npos) {
    std::error_code ignored;
    if (fs::is_directory(command, ignored))
      return Status(StatusCode::kSystem, "cannot run '" + command + "': it is a folder");
    if (::access(command.c_str(), X_OK) == 0) return command;
    const int error = errno;
    const Status status = system_error("cannot run '" + command + "'", error);
    return error == ENOENT ? Status(StatusCode::kNotFound, status.message()) : status;
  }
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string candidate = (folder.empty() ? "." : folder) + "/" + command;
    std::error_code error;
    if (::access(candidate.c_str(), X_OK) == 0 && fs::is_regular_file(candidate, error))
      return candidate;
  }
  constexpr std::string_view kSmi = "nvidia-smi";
  const char* const instead = command == kSmi ? "; `fargpu smi` shows the GPUs of a job" : "";
  return Status(StatusCode::kNotFound, "command '" + command + "' not found in PATH" + instead);
}

}  // namespace fargpu::cli

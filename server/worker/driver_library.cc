#include "server/worker/driver_library.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <link.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <vector>

#include "generated/server/driver_table.h"
#include "server/handover/client_library.h"

namespace fargpu::server {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSimulator = "libfargpu-sim.so";
// Where distributions, containers and WSL put the driver.
constexpr const char* kUsualFolders[] = {
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
    "/usr/lib",
};

fs::path own_folder() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  return error ? fs::path(".") : self.parent_path();
}

Result<std::string> find_simulator() {
  const fs::path here = own_folder();
  for (const fs::path& folder : {here / ".." / "lib", here, here / FARGPU_LIBRARY_FOLDER}) {
    std::error_code error;
    const fs::path path = folder / kSimulator;
    if (fs::exists(path, error)) return fs::canonical(path, error).string();
  }
  return Status(StatusCode::kNotFound,
                fmt::format("{} is neither in {} nor in ../lib or " FARGPU_LIBRARY_FOLDER
                            " beside it; build the target fargpu-sim or give --driver the path",
                            kSimulator, here.string()));
}

std::vector<fs::path> candidates() {
  std::vector<fs::path> folders;
  if (const char* path = std::getenv("LD_LIBRARY_PATH")) {
    std::istringstream list(path);
    for (std::string folder; std::getline(list, folder, ':');) {
      if (!folder.empty()) folders.emplace_back(folder);
    }
  }
  folders.insert(folders.end(), std::begin(kUsualFolders), std::end(kUsualFolders));
  return folders;
}

Result<std::string> find_real() {
  std::string ours;
  for (const fs::path& folder : candidates()) {
    std::error_code error;
    const fs::path path = fs::canonical(folder / "libcuda.so.1", error);
    if (error) continue;
    if (!is_fargpu_client(path.string())) return path.string();
    ours = path.string();
  }
  // What only the loader's cache knows.
  if (void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) {
    link_map* map = nullptr;
    std::string path;
    if (::dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr) path = map->l_name;
    if (!path.empty() && !is_fargpu_client(path)) return path;
    ours = path;
  }
  return Status(
      StatusCode::kNotFound,
      ours.empty()
          ? "no GPU driver: libcuda.so.1 was not found; install NVIDIA's driver, give its path "
            "with "
            "--driver, or use --driver sim"
          : fmt::format(
                "no GPU driver: the only libcuda.so.1 is fargpu's client library ({}); install "
                "NVIDIA's driver, or use --driver sim",
                ours));
}

}  // namespace

Result<std::string> find_driver(const std::string& driver) {
  if (driver == "sim") return find_simulator();
  if (driver == "auto") return find_real();
  std::error_code error;
  const fs::path path = fs::canonical(driver, error);
  if (error) {
    return Status(
        StatusCode::kNotFound,
        fmt::format("--driver {}: {}; give \"auto\", \"sim\" or the path of a libcuda.so.1", driver,
                    error.message()));
  }
  if (is_fargpu_client(path.string())) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("--driver {} is fargpu's own client library, not a driver", driver));
  }
  return path.string();
}

Result<DriverLibrary> DriverLibrary::open(const std::string& path) {
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return Status(StatusCode::kDriver, fmt::format("cannot load the driver: {}", ::dlerror()));
  auto table = std::make_shared<DriverTable>();
  load_driver_table(library, table.get());
  if (table->cuInit == nullptr || table->cuDriverGetVersion == nullptr ||
      table->cuDeviceGetCount == nullptr) {
    return Status(StatusCode::kDriver,
                  fmt::format("{} is not a CUDA driver: it has no cuInit", path));
  }
  if (const CUresult result = table->cuInit(0); result != CUDA_SUCCESS) {
    return Status(StatusCode::kDriver,
                  fmt::format("cuInit of the driver {}: {}", path, error_text(*table, result)));
  }
  int version = 0;
  table->cuDriverGetVersion(&version);
  return DriverLibrary(path, std::move(table), version);
}

std::string error_text(const DriverTable& table, int result) {
  const char* name = nullptr;
  if (table.cuGetErrorName != nullptr) table.cuGetErrorName(static_cast<CUresult>(result), &name);
  return fmt::format("{} ({})", name != nullptr ? name : "error", result);
}

}  // namespace fargpu::server

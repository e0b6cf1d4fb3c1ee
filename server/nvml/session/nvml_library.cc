#include "server/nvml/session/nvml_library.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <link.h>

#include <filesystem>

#include "generated/server/nvml/table.h"
#include "server/handover/client_library.h"

namespace fargpu::server {
namespace {

namespace fs = std::filesystem;

constexpr const char* kName = "libnvidia-ml.so.1";
constexpr const char* kSimulatedDriver = "libfargpu-sim.so";
constexpr const char* kSimulated = "libfargpu-sim-nvml.so";

Status none(const std::string& why) {
  return {StatusCode::kDriver,
          fmt::format("the server has no NVML: {}; install NVIDIA's {} beside its driver (Debian: "
                      "libnvidia-ml1), or go without NVML",
                      why, kName)};
}

Result<void*> load(const std::string& path) {
  if (void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  return none(::dlerror());
}

Result<void*> find(const std::string& driver) {
  const fs::path beside = fs::path(driver).parent_path();
  if (fs::path(driver).filename() == kSimulatedDriver) return load(beside / kSimulated);
  std::error_code error;
  const fs::path path = fs::canonical(beside / kName, error);
  if (!error && !is_fargpu_client(path.string())) return load(path.string());
  FARGPU_ASSIGN_OR_RETURN(void* const library, load(kName));
  link_map* map = nullptr;
  if (::dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr &&
      is_fargpu_client(map->l_name)) {
    return none(fmt::format("the only {} is fargpu's client library ({})", kName, map->l_name));
  }
  return library;
}

}  // namespace

Result<NvmlLibrary> NvmlLibrary::open(const std::string& driver) {
  FARGPU_ASSIGN_OR_RETURN(void* const library, find(driver));
  auto table = std::make_shared<NvmlTable>();
  load_nvml_table(library, table.get());
  if (table->nvmlInit_v2 == nullptr || table->nvmlDeviceGetHandleByUUID == nullptr)
    return none("its library has no nvmlInit_v2");
  if (const nvmlReturn_t result = table->nvmlInit_v2(); result != NVML_SUCCESS) {
    const char* text = table->nvmlErrorString != nullptr ? table->nvmlErrorString(result) : "";
    return none(
        fmt::format("nvmlInit: {} ({})", text != nullptr ? text : "", static_cast<int>(result)));
  }
  return NvmlLibrary(std::move(table));
}

Result<std::vector<nvmlDevice_t>> NvmlLibrary::devices(
    const std::vector<std::string>& uuids) const {
  std::vector<nvmlDevice_t> devices;
  for (const std::string& uuid : uuids) {
    nvmlDevice_t device = nullptr;
    nvmlReturn_t result = table_->nvmlDeviceGetHandleByUUID(uuid.c_str(), &device);
    // CUDA's text of a MIG instance may begin like that of a GPU.
    if (result != NVML_SUCCESS && uuid.starts_with("GPU-"))
      result = table_->nvmlDeviceGetHandleByUUID(("MIG-" + uuid.substr(4)).c_str(), &device);
    if (result != NVML_SUCCESS || device == nullptr) {
      return Status(StatusCode::kDriver,
                    fmt::format("the server's NVML does not know the GPU {} (error {})", uuid,
                                static_cast<int>(result)));
    }
    devices.push_back(device);
  }
  return devices;
}

}  // namespace fargpu::server

#include "client/bench/measure/about_gpu.h"

#include <dlfcn.h>

#include "client/bench/measure/driver.h"
#include "schema/nvml/nvml.h"

namespace fargpu::bench {

namespace {

class Nvml {
 public:
  Nvml() : library_(::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    works_ = call("nvmlInit_v2") == NVML_SUCCESS;
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml() {
    if (works_) call("nvmlShutdown");
  }
  bool works() const { return works_; }

  template <typename... Arguments>
  nvmlReturn_t call(const char* name, Arguments... arguments) const {
    using Function = nvmlReturn_t (*)(Arguments...);
    if (library_ == nullptr) return NVML_ERROR_LIBRARY_NOT_FOUND;
    const auto function = reinterpret_cast<Function>(::dlsym(library_, name));
    return function == nullptr ? NVML_ERROR_FUNCTION_NOT_FOUND : function(arguments...);
  }

 private:
  void* library_;
  bool works_ = false;
};

// What the call says of `where`.
template <typename... Where>
void add_number(Json& about, const char* key, const Nvml& nvml, const char* name, Where... where) {
  unsigned int value = 0;
  if (nvml.call(name, where..., &value) == NVML_SUCCESS) about[key] = value;
}

}  // namespace

Json about_gpu() {
  Json about = Json::object();
  char name[256] = {};
  CUdevice device = 0;
  NEED(cuDeviceGet(&device, 0));
  NEED(cuDeviceGetName(name, sizeof name, device));
  about["name"] = name;
  int version = 0;
  NEED(cuDriverGetVersion(&version));
  about["cuda_version"] = version;
  const Nvml nvml;
  nvmlDevice_t handle = nullptr;
  if (!nvml.works() || nvml.call("nvmlDeviceGetHandleByIndex_v2", 0U, &handle) != NVML_SUCCESS)
    return about;
  char text[NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE] = {};
  if (nvml.call("nvmlSystemGetDriverVersion", &text[0], static_cast<unsigned int>(sizeof text)) ==
      NVML_SUCCESS)
    about["driver"] = text;
  add_number(about, "power_state", nvml, "nvmlDeviceGetPerformanceState", handle);
  add_number(about, "power_milliwatts", nvml, "nvmlDeviceGetPowerUsage", handle);
  add_number(about, "power_limit_milliwatts", nvml, "nvmlDeviceGetEnforcedPowerLimit", handle);
  add_number(about, "clock_mhz", nvml, "nvmlDeviceGetClockInfo", handle, NVML_CLOCK_SM);
  add_number(about, "memory_clock_mhz", nvml, "nvmlDeviceGetClockInfo", handle, NVML_CLOCK_MEM);
  return about;
}

}  // namespace fargpu::bench

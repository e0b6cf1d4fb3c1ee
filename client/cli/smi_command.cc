// fargpu smi: the GPUs of a job as nvidia-smi shows them, by our own NVML. Inside `fargpu run` it
// is the program's job; elsewhere a job for as long as it looks.
#include <dlfcn.h>
#include <fmt/chrono.h>
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "client/cli/commands.h"
#include "client/cli/exit_codes.h"
#include "client/program/layout.h"
#include "schema/nvml/nvml.h"

namespace fargpu::cli {

namespace {

const std::string kNone = "N/A";

class Nvml {
 public:
  static Result<Nvml> open() {
    FARGPU_ASSIGN_OR_RETURN(const std::string folder, client_library_folder());
    Nvml nvml;
    nvml.library_ = ::dlopen((folder + "/libnvidia-ml.so.1").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (nvml.library_ == nullptr) return Status(StatusCode::kNotFound, ::dlerror());
    return nvml;
  }

  // The library's function with that name and these types of arguments.
  template <typename... Arguments>
  nvmlReturn_t call(const char* name, Arguments... arguments) const {
    using Function = nvmlReturn_t (*)(Arguments...);
    const auto function = reinterpret_cast<Function>(::dlsym(library_, name));
    return function == nullptr ? NVML_ERROR_FUNCTION_NOT_FOUND : function(arguments...);
  }
  // A text about a device; N/A where there is none.
  std::string text(const char* name, nvmlDevice_t device) const {
    char buffer[NVML_DEVICE_UUID_V2_BUFFER_SIZE] = {};
    const auto room = static_cast<unsigned int>(sizeof buffer);
    return call(name, device, &buffer[0], room) == NVML_SUCCESS ? buffer : kNone;
  }
  // A number about a device, as `show` writes it.
  template <typename Show>
  std::string number(const char* name, nvmlDevice_t device, Show&& show) const {
    unsigned int value = 0;
    return call(name, device, &value) == NVML_SUCCESS ? show(value) : kNone;
  }

 private:
  void* library_ = nullptr;
};

std::string on_or_off(unsigned int state) { return state != 0 ? "On" : "Off"; }

std::string enabled_or_disabled(unsigned int state) { return state != 0 ? "Enabled" : "Disabled"; }

std::string compute_mode(unsigned int mode) {
  constexpr const char* kNames[] = {"Default", "E. Thread", "Prohibited", "E. Process"};
  return mode < std::size(kNames) ? kNames[mode] : kNone;
}

// What does not fit loses its end, or its beginning, as in nvidia-smi.
std::string without_end(const std::string& text, size_t room) {
  return text.size() <= room ? text : text.substr(0, room - 3) + "...";
}
std::string without_beginning(const std::string& text, size_t room) {
  return text.size() <= room ? text : "..." + text.substr(text.size() - (room - 3));
}

uint64_t mebibytes(uint64_t bytes) { return bytes >> 20; }

void line(char fill, const char* corners) {
  const std::string left(41, fill), middle(24, fill), right(22, fill);
  fmt::print("{0}{1}{2}{3}{2}{4}{5}\n", corners[0], left, corners[1], middle, right, corners[2]);
}

// Uncorrected ones since the driver was loaded.
std::string errors(const Nvml& nvml, nvmlDevice_t device) {
  unsigned int checked = 0, pending = 0;
  if (nvml.call("nvmlDeviceGetEccMode", device, &checked, &pending) == NVML_SUCCESS && checked == 0)
    return "Off";
  unsigned long long count = 0;
  return nvml.call("nvmlDeviceGetTotalEccErrors", device, NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                   NVML_VOLATILE_ECC, &count) == NVML_SUCCESS
             ? std::to_string(count)
             : kNone;
}

void show_device(const Nvml& nvml, unsigned int index, nvmlDevice_t device) {
  nvmlPciInfo_t pci{};
  const bool has_pci = nvml.call("nvmlDeviceGetPciInfo_v3", device, &pci) == NVML_SUCCESS;
  nvmlMemory_t memory{};
  const bool has_memory = nvml.call("nvmlDeviceGetMemoryInfo", device, &memory) == NVML_SUCCESS;
  nvmlUtilization_t busy{};
  const bool has_busy = nvml.call("nvmlDeviceGetUtilizationRates", device, &busy) == NVML_SUCCESS;
  unsigned int temperature = 0, mig = 0, pending = 0;
  const bool has_temperature = nvml.call("nvmlDeviceGetTemperature", device, NVML_TEMPERATURE_GPU,
                                         &temperature) == NVML_SUCCESS;
  const bool has_mig = nvml.call("nvmlDeviceGetMigMode", device, &mig, &pending) == NVML_SUCCESS;
  const auto watts = [](unsigned int milliwatts) { return fmt::format("{}W", milliwatts / 1000); };
  const auto percent = [](unsigned int value) { return fmt::format("{}%", value); };

  fmt::print("| {:>3}  {:<27}    {:<3} | {:>18} {:>3} | {:>20} |\n", index,
             without_end(nvml.text("nvmlDeviceGetName", device), 27),
             nvml.number("nvmlDeviceGetPersistenceMode", device, on_or_off),
             has_pci ? pci.busId : kNone,
             nvml.number("nvmlDeviceGetDisplayActive", device, on_or_off), errors(nvml, device));
  fmt::print("| {:>3}  {:>4}    {:<4}{:>14} / {:>5} | {:>22} | {:>7}  {:>11} |\n",
             nvml.number("nvmlDeviceGetFanSpeed", device, percent),
             has_temperature ? fmt::format("{}C", temperature) : kNone,
             nvml.number("nvmlDeviceGetPerformanceState", device,
                         [](unsigned int state) { return fmt::format("P{}", state); }),
             nvml.number("nvmlDeviceGetPowerUsage", device, watts),
             nvml.number("nvmlDeviceGetEnforcedPowerLimit", device, watts),
             has_memory
                 ? fmt::format("{}MiB / {:>6}MiB", mebibytes(memory.used), mebibytes(memory.total))
                 : kNone,
             has_busy ? percent(busy.gpu) : kNone,
             nvml.number("nvmlDeviceGetComputeMode", device, compute_mode));
  fmt::print("| {:39} | {:22} | {:>20} |\n", "", "", has_mig ? enabled_or_disabled(mig) : kNone);
  line('-', "+++");
}

// How many there were.
size_t show_processes(const Nvml& nvml, unsigned int index, nvmlDevice_t device) {
  // One may come between two questions.
  constexpr unsigned int kMore = 16;
  std::vector<nvmlProcessInfo_t> processes(kMore);
  auto count = static_cast<unsigned int>(processes.size());
  nvmlReturn_t result = NVML_SUCCESS;
  while ((result = nvml.call("nvmlDeviceGetComputeRunningProcesses_v3", device, &count,
                             processes.data())) == NVML_ERROR_INSUFFICIENT_SIZE) {
    processes.resize(count + kMore);
    count = static_cast<unsigned int>(processes.size());
  }
  if (result != NVML_SUCCESS) return 0;
  for (unsigned int i = 0; i < count; ++i) {
    char name[256] = {};
    if (nvml.call("nvmlSystemGetProcessName", processes[i].pid, &name[0], 255U) != NVML_SUCCESS)
      std::snprintf(name, sizeof name, "[Not Found]");
    fmt::print("| {:>4}   N/A  N/A{:>16}      C   {:<32}{:>11}MiB |\n", index, processes[i].pid,
               without_beginning(name, 32), mebibytes(processes[i].usedGpuMemory));
  }
  return count;
}

int show_page(const Nvml& nvml, const std::vector<nvmlDevice_t>& devices) {
  char driver[NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE] = {};
  if (nvml.call("nvmlSystemGetDriverVersion", &driver[0],
                static_cast<unsigned int>(sizeof driver)) != NVML_SUCCESS)
    std::snprintf(driver, sizeof driver, "%s", kNone.c_str());
  int cuda = 0;
  const bool has_cuda = nvml.call("nvmlSystemGetCudaDriverVersion_v2", &cuda) == NVML_SUCCESS;
  const std::string version =
      has_cuda ? fmt::format("{}.{}", cuda / 1000, cuda % 1000 / 10) : kNone;
  fmt::print("{:%a %b %e %H:%M:%S %Y}       \n", fmt::localtime(std::time(nullptr)));
  line('-', "+-+");
  fmt::print("| {:<33} Driver Version: {:<14} CUDA Version: {:<8} |\n",
             "FARGPU-SMI " FARGPU_VERSION, driver, version);
  line('-', "+++");
  fmt::print("| {:<39} | {:<22} | {:<20} |\n", "GPU  Name                 Persistence-M",
             "Bus-Id          Disp.A", "Volatile Uncorr. ECC");
  fmt::print("| {:<39} | {:>22} | {:<20} |\n", "Fan  Temp   Perf          Pwr:Usage/Cap",
             "Memory-Usage", "GPU-Util  Compute M.");
  fmt::print("| {:<39} | {:>22} | {:>20} |\n", "", "", "MIG M.");
  line('=', "|+|");
  for (unsigned int i = 0; i < devices.size(); ++i) show_device(nvml, i, devices[i]);
  fmt::print("\n");
  line('-', "+-+");
  fmt::print("| {:<87} |\n", "Processes:");
  fmt::print("| {:<87} |\n",
             " GPU   GI   CI              PID   Type   Process name                       "
             " GPU Memory");
  fmt::print("| {:<87} |\n",
             "       ID   ID                                                              "
             " Usage");
  line('=', "|=|");
  size_t shown = 0;
  for (unsigned int i = 0; i < devices.size(); ++i) shown += show_processes(nvml, i, devices[i]);
  if (shown == 0) fmt::print("| {:<87} |\n", " No running processes found");
  line('-', "+-+");
  return kSuccess;
}

int show_list(const Nvml& nvml, const std::vector<nvmlDevice_t>& devices) {
  for (unsigned int i = 0; i < devices.size(); ++i) {
    fmt::print("GPU {}: {} (UUID: {})\n", i, nvml.text("nvmlDeviceGetName", devices[i]),
               nvml.text("nvmlDeviceGetUUID", devices[i]));
  }
  return kSuccess;
}

// The library has said why on stderr.
int failed(nvmlReturn_t result) {
  switch (result) {
    case NVML_ERROR_NO_PERMISSION:
      return kRefused;
    case NVML_ERROR_LIB_RM_VERSION_MISMATCH:
      return kProtocolError;
    case NVML_ERROR_LIBRARY_NOT_FOUND:
      return kMissingPart;
    case NVML_ERROR_INVALID_ARGUMENT:
      return kUsage;
    case NVML_ERROR_INSUFFICIENT_RESOURCES:
      return kNoCapacity;
    default:
      return kUnreachable;
  }
}

int smi(const ServerOptions& options, bool list) {
  if (const Status status = export_server(options); !status.ok()) return fail(status);
  // Of a wrong setting the library says that there is no driver.
  if (const auto targets = targets_from_environment(); !targets.ok()) return fail(targets.status());
  const auto nvml = Nvml::open();
  if (!nvml.ok()) return fail(nvml.status());
  if (const nvmlReturn_t result = nvml->call("nvmlInit_v2"); result != NVML_SUCCESS)
    return failed(result);
  unsigned int count = 0;
  nvml->call("nvmlDeviceGetCount_v2", &count);
  std::vector<nvmlDevice_t> devices(count);
  for (unsigned int i = 0; i < count; ++i)
    nvml->call("nvmlDeviceGetHandleByIndex_v2", i, &devices[i]);
  const int code = list ? show_list(*nvml, devices) : show_page(*nvml, devices);
  nvml->call("nvmlShutdown");
  return code;
}

}  // namespace

void add_smi(CLI::App& app, Command& command) {
  CLI::App* smi_app = app.add_subcommand(
      "smi", "Show the GPUs of a job as nvidia-smi does; inside `fargpu run`: the program's");
  auto options = std::make_shared<ServerOptions>();
  auto list = std::make_shared<bool>(false);
  add_server_options(*smi_app, *options);
  smi_app->add_flag("-L,--list-gpus", *list, "One line per GPU: name and UUID");
  smi_app->callback(
      [options, list, &command] { command = [options, list] { return smi(*options, *list); }; });
}

}  // namespace fargpu::cli

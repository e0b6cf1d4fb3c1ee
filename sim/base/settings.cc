#include "sim/base/settings.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/parse.h"

namespace fargpu::sim {
namespace {

constexpr size_t kMinMemory = size_t{16} << 20;
constexpr size_t kMaxMemory = size_t{1} << 40;

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

constexpr size_t kInstanceByte = 13;  // of a UUID

bool parse_number(std::string_view text, uint64_t* value) {
  auto parsed = parse_integer(text);
  if (parsed) *value = *parsed;
  return parsed.ok();
}

Status bad_value(const char* name, std::string_view value, const char* expected) {
  return Status(StatusCode::kInvalidArgument, std::string(name) + "=\"" + std::string(value) +
                                                  "\" is not valid: give " + expected);
}

// The unit that a UUID prefix names; -1: none or several.
int unit_of_uuid(std::string_view prefix, const Settings& settings) {
  int found = -1;
  for (int gpu = 0; gpu < settings.gpus; ++gpu) {
    for (int instance = -1; instance < settings.instances; ++instance) {
      const int unit = unit_of(gpu, instance);
      const Uuid uuid = device_uuid(settings.compute_capability(gpu), unit);
      if (!uuid_text(uuid).starts_with(prefix)) continue;
      if (found >= 0) return -1;
      found = unit;
    }
  }
  return found;
}

// 90 for "9.0"; 0: none that is simulated.
int parse_capability(std::string_view text) {
  const size_t dot = text.find('.');
  uint64_t major = 0, minor = 0;
  if (dot == std::string_view::npos || !parse_number(text.substr(0, dot), &major) ||
      !parse_number(text.substr(dot + 1), &minor) || major < 7 || major > 12 || minor > 9 ||
      (major == 7 && minor < 5))
    return 0;
  return static_cast<int>(10 * major + minor);
}

// Empty: not a list of 1 to `gpus` capabilities.
std::vector<int> parse_capabilities(std::string_view text, int gpus) {
  std::vector<int> all;
  while (true) {
    const size_t comma = text.find(',');
    const int capability = parse_capability(trim(text.substr(0, comma)));
    if (capability == 0 || all.size() == static_cast<size_t>(gpus)) return {};
    all.push_back(capability);
    if (comma == std::string_view::npos) return all;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace

int Settings::compute_capability(int gpu) const {
  return compute_capabilities[std::min(static_cast<size_t>(gpu), compute_capabilities.size() - 1)];
}

size_t Settings::unit_bytes() const {
  constexpr size_t kStep = size_t{2} << 20;
  return instances == 0 ? memory_bytes
                        : memory_bytes / static_cast<size_t>(instances) / kStep * kStep;
}

Uuid device_uuid(int compute_capability, int unit) {
  Uuid uuid{};
  std::memcpy(uuid.data(), "fargpu-sim", 10);
  uuid[kInstanceByte] = static_cast<unsigned char>(instance_of(unit) + 1);
  uuid[14] = static_cast<unsigned char>(compute_capability);
  uuid[15] = static_cast<unsigned char>(gpu_of(unit));
  return uuid;
}

std::string uuid_text(const Uuid& uuid) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text = uuid[kInstanceByte] == 0 ? "GPU-" : "MIG-";
  for (size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kDigits[uuid[i] >> 4];
    text += kDigits[uuid[i] & 15];
  }
  return text;
}

std::string device_name(const Settings& settings, int gpu) {
  std::string name = fmt::format("fargpu simulated GPU (sm_{})", settings.compute_capability(gpu));
  if (settings.instances != 0) name += fmt::format(" MIG 1g.{}gb", settings.unit_bytes() >> 30);
  return name;
}

std::vector<int> parse_visible_devices(std::string_view text, const Settings& settings) {
  const int instances = settings.instances;
  std::vector<int> visible;
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view entry = trim(text.substr(0, comma));
    int unit = -1;
    if (entry.starts_with("GPU-") || entry.starts_with("MIG-")) {
      unit = unit_of_uuid(entry, settings);
    } else if (uint64_t number = 0;
               parse_number(entry, &number) && number < static_cast<uint64_t>(settings.gpus)) {
      unit = static_cast<int>(number);
    }
    if (unit < 0) break;
    if (instances > 0 && instance_of(unit) < 0) unit = unit_of(unit, 0);
    if (std::find(visible.begin(), visible.end(), unit) != visible.end()) return {};
    visible.push_back(unit);
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  if (instances > 0 && !visible.empty()) visible.erase(visible.begin() + 1, visible.end());
  return visible;
}

Result<Settings> read_settings(const std::function<const char*(const char*)>& get) {
  Settings settings;
  if (const char* text = get("FARGPU_SIM_GPUS")) {
    uint64_t value = 0;
    if (!parse_number(trim(text), &value) || value < 1 || value > kMaxGpus) {
      return bad_value("FARGPU_SIM_GPUS", text, "a number from 1 to 16");
    }
    settings.gpus = static_cast<int>(value);
  }
  if (const char* text = get("FARGPU_SIM_MEMORY")) {
    auto size = parse_bytes(trim(text));
    if (!size || *size < kMinMemory || *size > kMaxMemory) {
      return bad_value("FARGPU_SIM_MEMORY", text, "a size from 16M to 1T, like 512M or 8G");
    }
    settings.memory_bytes = *size & ~((size_t{2} << 20) - 1);
  }
  if (const char* text = get("FARGPU_SIM_COMPUTE_CAPABILITY")) {
    settings.compute_capabilities = parse_capabilities(text, settings.gpus);
    if (settings.compute_capabilities.empty()) {
      return bad_value("FARGPU_SIM_COMPUTE_CAPABILITY", text,
                       "a capability from 7.5 to 12.9, like 9.0, or a list of at most one for "
                       "each GPU");
    }
  }
  if (const char* text = get("FARGPU_SIM_MIG")) {
    uint64_t value = 0;
    if (!parse_number(trim(text), &value) || value < 2 || value > 7)
      return bad_value("FARGPU_SIM_MIG", text, "a number of instances from 2 to 7");
    settings.instances = static_cast<int>(value);
  }
  if (const char* text = get("FARGPU_SIM_THREADS")) {
    uint64_t value = 0;
    if (!parse_number(trim(text), &value) || value > 1024) {
      return bad_value("FARGPU_SIM_THREADS", text, "a number from 0 (all cores) to 1024");
    }
    settings.threads = static_cast<int>(value);
  }
  if (const char* text = get("FARGPU_SIM_COMPUTE_MODE")) {
    const std::string_view mode = trim(text);
    if (mode != "default" && mode != "prohibited") {
      return bad_value("FARGPU_SIM_COMPUTE_MODE", text, "default or prohibited");
    }
    settings.prohibited = mode == "prohibited";
  }
  if (const char* text = get("FARGPU_SIM_JITTER")) {
    uint64_t value = 0;
    if (!parse_number(trim(text), &value) || value > 1000000) {
      return bad_value("FARGPU_SIM_JITTER", text, "a number of microseconds from 0 to 1000000");
    }
    settings.jitter_microseconds = static_cast<int>(value);
  }
  if (const char* text = get("FARGPU_SIM_LOCKED_WAITS")) {
    uint64_t value = 0;
    if (!parse_number(trim(text), &value) || value > 1)
      return bad_value("FARGPU_SIM_LOCKED_WAITS", text, "0 or 1");
    settings.locked_waits = value == 1;
  }
  if (const char* text = get("FARGPU_SIM_STREAM_WAITS")) {
    uint64_t value = 0;
    if (!parse_number(trim(text), &value) || value > 1)
      return bad_value("FARGPU_SIM_STREAM_WAITS", text, "0 or 1");
    settings.stream_waits = value == 1;
  }
  if (const char* text = get("FARGPU_SIM_NVML_HANG")) {
    const std::string_view call = trim(text);
    if (call != "init" && call != "utilization")
      return bad_value("FARGPU_SIM_NVML_HANG", text, "init or utilization");
    settings.nvml_hang = call == "init" ? Settings::Hang::kInit : Settings::Hang::kUtilization;
  }
  if (const char* text = get("FARGPU_SIM_WANTED_ADDRESSES")) {
    uint64_t value = 0;
    if (!parse_number(trim(text), &value) || value > 1)
      return bad_value("FARGPU_SIM_WANTED_ADDRESSES", text, "0 or 1");
    settings.wanted_addresses = value == 1;
  }
  if (const char* text = get("FARGPU_SIM_QUEUE")) {
    uint64_t value = 0;
    if (!parse_number(trim(text), &value) || value < 1 || value > 1021) {
      return bad_value("FARGPU_SIM_QUEUE", text, "a number from 1 to 1021");
    }
    settings.queue_places = static_cast<int>(value);
  }
  if (const char* text = get("CUDA_DEVICE_MAX_CONNECTIONS")) {
    uint64_t value = 0;  // other values count for nothing
    if (parse_number(trim(text), &value) && value >= 1 && value <= 32)
      settings.connections = static_cast<int>(value);
  }
  if (const char* text = get("FARGPU_SIM_SHARED")) settings.shared = text;
  if (const char* text = get("FARGPU_SIM_CONTEXT_MEMORY")) {
    auto size = parse_bytes(trim(text));
    if (!size || *size > settings.memory_bytes)
      return bad_value("FARGPU_SIM_CONTEXT_MEMORY", text, "a size like 500M, at most the GPU's");
    settings.context_bytes = *size;
  }
  for (const auto& [name, milliseconds] :
       {std::pair("FARGPU_SIM_CONTEXT_END", &settings.context_end_milliseconds),
        std::pair("FARGPU_SIM_INIT", &settings.init_milliseconds)}) {
    const char* const text = get(name);
    if (text == nullptr) continue;
    uint64_t value = 0;
    if (!parse_number(trim(text), &value) || value > 600000)
      return bad_value(name, text, "a number of milliseconds from 0 to 600000");
    *milliseconds = static_cast<int>(value);
  }
  if (const char* text = get("FARGPU_SIM_SLOT")) {
    uint64_t value = 0;
    if (!parse_number(trim(text), &value) || value >= kSlots)
      return bad_value("FARGPU_SIM_SLOT", text, "a number from 0 to 31");
    settings.slot = static_cast<int>(value);
  }
  if (const char* text = get("CUDA_VISIBLE_DEVICES")) {
    settings.visible = parse_visible_devices(text, settings);
  } else if (settings.instances > 0) {
    settings.visible.push_back(unit_of(0, 0));
  } else {
    for (int i = 0; i < settings.gpus; ++i) settings.visible.push_back(i);
  }
  return settings;
}

}  // namespace fargpu::sim

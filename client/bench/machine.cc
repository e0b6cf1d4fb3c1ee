#include "client/bench/machine.h"

#include <fmt/chrono.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <fstream>
#include <thread>

#include "client/bench/figures/histogram.h"

namespace fargpu::bench {

namespace {

const std::string kUnknown = "unknown";

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  return std::getline(file, line) && !line.empty() ? line : kUnknown;
}

// The value of the first "name : value" or "name=value" of a file.
std::string value_in(const char* path, const std::string& name, char separator) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name)) continue;
    const size_t at = line.find(separator);
    if (at == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(" \t\"", at + 1);
    if (begin == std::string::npos) continue;
    return line.substr(begin, line.find_last_not_of(" \t\"") + 1 - begin);
  }
  return kUnknown;
}

// What reading the clock costs, which is part of every time.
uint64_t clock_read_ns() {
  constexpr unsigned kReads = 10000;
  const auto begin = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point last;
  for (unsigned i = 0; i < kReads; ++i) last = std::chrono::steady_clock::now();
  return static_cast<uint64_t>(
             std::chrono::duration_cast<std::chrono::nanoseconds>(last - begin).count()) /
         kReads;
}

}  // namespace

uint64_t available_memory() {
  const std::string text = value_in("/proc/meminfo", "MemAvailable", ':');
  return std::strtoull(text.c_str(), nullptr, 10) << 10;
}

std::string date_now() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

Json about_machine() {
  utsname names{};
  ::uname(&names);
  double load = 0;
  ::getloadavg(&load, 1);
  return {{"host", names.nodename},
          {"os", value_in("/etc/os-release", "PRETTY_NAME", '=')},
          {"kernel", names.release},
          {"cpu", value_in("/proc/cpuinfo", "model name", ':')},
          {"cores", std::thread::hardware_concurrency()},
          {"memory_available_bytes", available_memory()},
          {"clock", first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource")},
          {"clock_read_ns", clock_read_ns()},
          {"governor", first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")},
          {"no_turbo", first_line("/sys/devices/system/cpu/intel_pstate/no_turbo")},
          {"sleep_state_driver", first_line("/sys/devices/system/cpu/cpuidle/current_driver")},
          {"load", load}};
}

}  // namespace fargpu::bench

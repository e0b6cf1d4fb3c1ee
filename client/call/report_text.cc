#include "client/call/report_text.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <system_error>
#include <vector>

#include "client/call/report_json.h"
#include "common/base/descriptors.h"
#include "common/base/env.h"
#include "common/base/fd.h"
#include "common/base/log.h"
#include "common/base/since_load.h"
#include "common/rpc/link_times.h"

namespace fargpu::client::report {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostNames = 6, kMostCallSites = 10;
// Written before anything is counted, then only in forked children.
Clock::time_point began;
const char* since_what = "its first call";
// The file, or nullptr for stderr. Absolute: the program may change its folder. Never freed.
const char* path = nullptr;

struct Named {
  const char* name;
  uint64_t calls, nanoseconds;
};

void append_line(std::string& out, const char* title, const std::string& rest) {
  fmt::format_to(std::back_inserter(out), "fargpu:   {:<16}{}\n", title, rest);
}

std::string copies(const std::array<OfRoute, kRoutes>& routes) {
  uint64_t count = 0, bytes = 0;
  std::string parts;
  for (size_t i = 0; i < kRoutes; ++i) {
    const uint64_t here = routes[i].copies.get();
    if (here == 0) continue;
    count += here;
    bytes += routes[i].bytes.get();
    parts += fmt::format("{} {} {} ({} bytes)", parts.empty() ? ":" : ",", name_of_route(i), here,
                         routes[i].bytes.get());
  }
  return fmt::format("{} bytes in {} copies{}", bytes, count, parts);
}

// Those that kept the program longest come first.
std::string longest_waits(std::vector<Named> waits) {
  std::stable_sort(waits.begin(), waits.end(),
                   [](const Named& a, const Named& b) { return a.nanoseconds > b.nanoseconds; });
  std::string out;
  for (size_t i = 0; i < waits.size() && i < kMostNames; ++i) {
    out += fmt::format("{} {} {} ({:.3f} s)", out.empty() ? ":" : ",", waits[i].name,
                       waits[i].calls, static_cast<double>(waits[i].nanoseconds) / 1e9);
  }
  return out + (waits.size() > kMostNames ? ", ..." : "");
}

// A pipe is not waited for.
Fd open_file(const char* file) {
  return descriptors::open_file(file, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK, 0644);
}

// Whether it can be written. Who reads a pipe must not see it end now.
bool can_write(const char* file) {
  struct stat about {};
  if (::stat(file, &about) == 0 && !S_ISREG(about.st_mode)) return ::access(file, W_OK) == 0;
  return open_file(file).valid();
}

void say_no_report(const char* file) {
  log::error("FARGPU_REPORT={}: cannot be opened: {}{}; no report is written", file,
             std::strerror(errno), explanation(errno));
}

}  // namespace

bool is_asked() {
  const auto setting = env_text("FARGPU_REPORT");
  if (!setting || *setting == "0") return false;
  began = Clock::now();
  if (*setting == "1") return true;
  std::error_code no_folder;
  const auto absolute = std::filesystem::absolute(*setting, no_folder);
  // An error is told now, not at the program's end.
  if (!can_write(absolute.c_str())) {
    say_no_report(setting->c_str());
    return false;
  }
  path = ::strdup(absolute.c_str());
  return path != nullptr;
}

const char* name_of(size_t place) {
  return place == kWithoutOpcode
             ? "functions of graphics libraries"
             : schema::opcode_name(static_cast<uint16_t>(schema::kFirstOpcode + place));
}

const char* name_of_route(size_t route) {
  constexpr const char* kNames[kRoutes] = {"mirror", "shared", "fetch", "deliver",
                                           "remote", "staged", "frames"};
  return kNames[route];
}

void begin_anew() {
  began = Clock::now();
  since_what = "its fork";
}

std::string text(const Counts& counts, const std::string& process, double seconds,
                 const char* since) {
  uint64_t local = 0, sent = 0, waited = 0, nanoseconds = 0;
  std::vector<Named> waits;
  std::string not_supported;
  for (size_t i = 0; i < counts.functions.size(); ++i) {
    const OfFunction& of = counts.functions[i];
    const char* const name = name_of(i);
    local += of.local.get();
    sent += of.sent.get();
    waited += of.waited.get();
    nanoseconds += of.nanoseconds.get();
    if (of.waited.get() != 0) waits.push_back({name, of.waited.get(), of.nanoseconds.get()});
    if (const uint64_t met = of.not_supported.get(); met != 0)
      not_supported += fmt::format("{}{} {}", not_supported.empty() ? "" : ", ", name, met);
  }
  const uint64_t calls = local + sent + waited;
  if (calls == 0) return {};
  std::string out =
      fmt::format("fargpu: report of {}, {:.1f} s from {} on:\n", process, seconds, since);
  append_line(out, "calls",
              fmt::format("{}: {} answered in the client, {} sent, {} waited for the server", calls,
                          local, sent, waited));
  append_line(out, "waited",
              fmt::format("{:.3f} s{}", static_cast<double>(nanoseconds) / 1e9,
                          longest_waits(std::move(waits))));
  append_line(out, "host to device", copies(counts.copies[1]));
  append_line(out, "device to host", copies(counts.copies[0]));
  append_line(out, "images",
              fmt::format("{} sent ({} bytes as {}), {} found at the server",
                          counts.images_sent.get(), counts.image_bytes.get(),
                          counts.image_bytes_sent.get(), counts.images_found.get()));
  append_line(out, "not supported", not_supported.empty() ? "none met" : not_supported);
  return out;
}

std::string text(const call_sites::Found& found) {
  std::string out;
  for (size_t i = 0; i < found.sites.size() && i < kMostCallSites; ++i) {
    const CallSite& of = found.sites[i];
    append_line(out, i == 0 ? "waited at" : "",
                fmt::format("{} ({} {}, {:.3f} s{}{})", of.site, name_of(of.function),
                            of.counts.waited, static_cast<double>(of.counts.nanoseconds) / 1e9,
                            of.library.empty() ? "" : ", by ", of.library));
  }
  if (found.sites.size() > kMostCallSites)
    append_line(out, "", fmt::format("and {} more", found.sites.size() - kMostCallSites));
  return out;
}

namespace {

bool is_json_wanted() { return path != nullptr && std::string_view(path).ends_with(".json"); }

std::string lines_of(const Counts& counts) {
  const Clock::duration age = Clock::now() - began;
  const bool has_call_sites = call_sites::enabled();
  const call_sites::Found found = has_call_sites ? call_sites::so_far() : call_sites::Found{};
  if (is_json_wanted())
    return json(
        counts, rpc::link_times::so_far(),
        {program_invocation_short_name, ::getpid(), began.time_since_epoch().count(), age.count()},
        has_call_sites ? &found : nullptr);
  const std::string process =
      fmt::format("{} (process {})", program_invocation_short_name, ::getpid());
  const std::string lines =
      text(counts, process, std::chrono::duration<double>(age).count(), since_what);
  return lines.empty() ? lines : lines + text(found);
}

}  // namespace

void print(const Counts& counts) {
  const std::string lines = lines_of(counts);
  if (lines.empty()) return;
  Fd file;
  if (path != nullptr) {
    file = open_file(path);
    if (!file.valid()) {
      say_no_report(path);
      return;
    }
  }
  // One write: the reports of several processes do not mix. A full disk loses lines, not the
  // program.
  [[maybe_unused]] const ssize_t written =
      ::write(path != nullptr ? file.get() : STDERR_FILENO, lines.data(), lines.size());
}

}  // namespace fargpu::client::report

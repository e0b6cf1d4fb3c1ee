// fargpu doctor: reports what a program started by `fargpu run` would find, by trying it. A child
// process loads libcuda.so.1 in the run environment and reports which file that was; a short
// session measures the path to the server. Exit code 0 when everything is well.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "client/cli/commands.h"
#include "client/cli/exit_codes.h"
#include "client/cli/server_query.h"
#include "client/memory/user_faults.h"
#include "client/process/managed_way.h"
#include "client/program/layout.h"
#include "client/program/program_file.h"
#include "client/settings/fetch_mode.h"
#include "client/settings/job.h"
#include "common/base/env.h"
#include "common/base/fd.h"
#include "common/transport/rdma/rdma.h"

namespace fargpu::cli {

namespace {

constexpr auto kAnswerLimit = std::chrono::seconds(60);  // a worker may have to start a cold driver
constexpr const char* kProbeName = "load-probe";

struct DoctorOptions {
  ServerOptions server;
  std::string program;
  unsigned pings = 101;
};

void line(bool good, const char* what, const std::string& text) {
  std::printf("%s  %-12s %s\n", good ? "ok  " : "FAIL", what, text.c_str());
}

// In the child: which file is libcuda.so.1 here? Prints one line: "loaded PATH" or "none REASON".
int load_probe() {
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) {
    std::printf("none %s\n", ::dlerror());
    return kMissingPart;
  }
  Dl_info info{};
  void* entry = ::dlsym(library, "cuGetProcAddress_v2");
  if (entry == nullptr) entry = ::dlsym(library, "cuInit");
  const bool known = entry != nullptr && ::dladdr(entry, &info) != 0;
  std::printf("loaded %s\n", known ? info.dli_fname : "unknown");
  return kSuccess;
}

// Starts load_probe in the environment of `fargpu run` and returns its line.
Result<std::string> loaded_library(const std::string& program) {
  FARGPU_ASSIGN_OR_RETURN(std::string self, own_path());
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("pipe2", errno);
  Fd reader(ends[0]), writer(ends[1]);
  pid_t child = ::fork();
  if (child < 0) return system_error("fork", errno);
  if (child == 0) {
    const auto found = find_program(program);
    Status status = export_library(found.ok() ? *found : self, Preload::kAuto);
    if (!status.ok()) {
      dprintf(writer.get(), "none %s\n", status.message().c_str());
      ::_exit(kMissingPart);
    }
    ::dup2(writer.get(), 1);
    ::execl(self.c_str(), "fargpu", kProbeName, static_cast<char*>(nullptr));
    ::_exit(kCannotExecute);
  }
  writer.reset();
  std::string text;
  char buffer[512];
  for (ssize_t got; (got = ::read(reader.get(), buffer, sizeof(buffer))) > 0;)
    text.append(buffer, static_cast<size_t>(got));
  int state = 0;
  while (::waitpid(child, &state, 0) < 0 && errno == EINTR) {
  }
  if (text.empty()) return Status(StatusCode::kNotFound, "the probe process said nothing");
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

// 0, or the code of what is wrong with the library.
int examine_library(const DoctorOptions& options) {
  auto found = loaded_library(options.program);
  if (!found) {
    line(false, "library", found.status().message());
    return exit_code(found.status());
  }
  const size_t blank = found->find(' ');
  const std::string path = blank == std::string::npos ? "" : found->substr(blank + 1);
  if (found->substr(0, blank) != "loaded") {
    line(false, "library", "no libcuda.so.1 can be loaded: " + path);
    return kMissingPart;
  }
  auto ours = client_library_folder();
  std::error_code error;
  if (!ours || !std::filesystem::equivalent(path, *ours + "/libcuda.so.1", error)) {
    line(false, "library",
         path +
             " is loaded, which is not fargpu's; look at LD_LIBRARY_PATH, LD_PRELOAD and the "
             "program's RPATH");
    return kMissingPart;
  }
  line(true, "library", path);
  return kSuccess;
}

// What `fargpu run` would say of the program, or of any in this environment.
int examine_program(const std::string& program) {
  if (const Status tools = check_tools(program); !tools.ok()) {
    line(false, "program", tools.message());
    return exit_code(tools);
  }
  if (program.empty()) return kSuccess;
  const auto found = find_program(program);
  if (!found) {
    line(false, "program", found.status().message());
    return start_exit_code(found.status());
  }
  if (const std::string doubt = doubt_about(*found); !doubt.empty()) {
    line(false, "program", doubt);
    return kMissingPart;
  }
  line(true, "program",
       *found + (has_rpath(*found) ? " has an RPATH: started with LD_PRELOAD"
                                   : " is started with LD_LIBRARY_PATH"));
  return kSuccess;
}

std::string list_lacking(const std::vector<std::string>& names) {
  constexpr size_t kShown = 5;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i)
    text += (i == 0 ? "; the server does not know " : ", ") + names[i];
  if (names.size() > kShown)
    text += " and " + std::to_string(names.size() - kShown) + " more functions";
  return text;
}

std::string cuda_version(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// The rdma device that the session uses, or what this host has and why it is not used.
void show_rdma(const SessionProbe& probe) {
  if (!probe.device_memory.empty()) {
    line(true, "rdma", probe.route);
    line(true, "GPU memory", probe.device_memory);
    return;
  }
  const auto ports = transport::list_rdma_ports();
  if (!ports.ok() || ports->empty()) {
    line(true, "rdma",
         "not used: " + (ports.ok() ? "no RDMA device on this host" : ports.status().message()));
    return;
  }
  // For the socket itself the reason says why each faster transport failed.
  line(true, "rdma",
       probe.same_host ? "not used: shared memory is better" : "not used, see transport");
  for (const transport::RdmaPort& port : *ports) line(true, "rdma port", port.text());
}

int examine_server(const Target& target, const JobWish& wish, const DoctorOptions& options) {
  auto status = query_status(target, transport::Clock::now() + kAnswerLimit);
  if (!status) {
    line(false, "server", status.status().message());
    return exit_code(status.status());
  }
  line(true, "server",
       target.address.to_string() + ", fargpud " + status->version + ", " +
           std::to_string(status->sessions.size()) + " sessions");
  line(true, "token", target.token.empty() ? "none needed" : "accepted");
  line(status->agrees, "versions",
       "client " FARGPU_VERSION ", server " + status->version +
           (status->agrees ? "" : ", which cannot work together") + list_lacking(status->lacks));
  line(!status->gpus.empty(), "driver",
       status->driver_name + ", CUDA " + cuda_version(status->driver_version) + ", " +
           std::to_string(status->gpus.size()) + " GPUs");

  auto probe = probe_session(target, wish, options.pings, transport::Clock::now() + kAnswerLimit);
  if (!probe) {
    line(false, "session", probe.status().message());
    return exit_code(probe.status());
  }
  char text[160];
  std::snprintf(text, sizeof(text), "opened in %.1f ms with %u GPUs",
                static_cast<double>(probe->opening.count()) / 1e3, probe->devices);
  line(true, "session", text);
  line(true, "transport", probe->transport + " (" + probe->reason + ")");
  for (const std::string& failure : probe->failures) line(false, "better one", failure);
  show_rdma(*probe);
  std::snprintf(text, sizeof(text), "%.1f us (median of %u)",
                static_cast<double>(probe->median_round_trip.count()) / 1e3, options.pings);
  line(true, "round trip", text);
  if (const auto link = env_text("FARGPU_LINK"))
    line(true, "link", *link + " is emulated for programs; the figures here are without it");
  return status->gpus.empty() ? kMissingPart : kSuccess;
}

// How managed memory is fetched, and whether system calls can use it.
int examine_managed_memory() {
  const auto way = client::choose_managed_way();
  if (!way.ok()) {
    line(false, "managed", way.status().message());
    return exit_code(way.status());
  }
  const char* const fetched = way->by_messages ? "on access, also for system calls"
                              : way->is_eager  ? "eager: fetched at every synchronisation"
                                               : "on access, but not for system calls";
  const std::string renamed = client::renamed_managed_mode();
  line(true, "managed",
       fetched + (" (" + way->why + ")") + (renamed.empty() ? "" : "; " + renamed));
  return kSuccess;
}

// How pinned memory is fetched over tcp and rdma, and registered memory over each transport.
int examine_mapped_memory() {
  const auto mode = client::read_mapped_mode();
  if (!mode.ok()) {
    line(false, "mapped", mode.status().message());
    return exit_code(mode.status());
  }
  if (*mode == client::FetchMode::kEager) {
    line(true, "mapped", "eager: fetched at every synchronisation (FARGPU_MAPPED=eager)");
    return kSuccess;
  }
  if (!client::wants_touched(*mode)) {
    line(true, "mapped",
         "eager: fetched at every synchronisation (this host has an adapter; set "
         "FARGPU_MAPPED=touched for programs that do not register memory with it)");
    return kSuccess;
  }
  const Status faults = client::UserFaults::probe();
  line(true, "mapped",
       faults.ok() ? "on access (userfaultfd)"
                   : "eager: fetched at every synchronisation (" + faults.message() +
                         "; docs/managed-memory.md says what userfaultfd needs)");
  return kSuccess;
}

int examine_servers(const DoctorOptions& options) {
  auto targets = targets_from_environment();
  if (!targets) {
    line(false, "server", targets.status().message());
    return exit_code(targets.status());
  }
  const auto wish = wish_from_environment();
  auto jobs = Result<std::vector<bootstrap::JobTicket>>(std::vector<bootstrap::JobTicket>());
  if (env_text(bootstrap::kJobVariable)) jobs = client::jobs_of_this_process(targets->size());
  for (const Status& status : {wish.status(), jobs.status()}) {
    if (status.ok()) continue;
    line(false, "job", status.message());
    return exit_code(status);
  }
  return for_each_server(*targets, [&](const Target& target) {
    JobWish own = *wish;
    if (!jobs->empty()) own.job = (*jobs)[static_cast<size_t>(&target - targets->data())];
    return examine_server(target, own, options);
  });
}

int doctor(const DoctorOptions& options) {
  std::printf("fargpu %s\n", FARGPU_VERSION);
  if (Status status = export_server(options.server); !status.ok()) return fail(status);
  std::fflush(stdout);
  const int library = examine_library(options);
  const int program = examine_program(options.program);
  const int managed = examine_managed_memory();
  const int mapped = examine_mapped_memory();
  const int server = examine_servers(options);
  const int wrong = library != kSuccess   ? library
                    : program != kSuccess ? program
                    : managed != kSuccess ? managed
                    : mapped != kSuccess  ? mapped
                                          : server;
  std::printf("%s\n", wrong == kSuccess ? "all is well" : "something is wrong, see above");
  return wrong;
}

}  // namespace

void add_doctor(CLI::App& app, Command& command) {
  CLI::App* doctor_app =
      app.add_subcommand("doctor", "Check library, server, versions, transport and round trip");
  auto options = std::make_shared<DoctorOptions>();
  add_server_options(*doctor_app, options->server);
  doctor_app->add_option("--program", options->program, "Check the start of this program too");
  doctor_app->add_option("--pings", options->pings, "Round trips to measure")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  doctor_app->callback([options, &command] { command = [options] { return doctor(*options); }; });
}

void add_load_probe(CLI::App& app, Command& command) {
  CLI::App* probe_app = app.add_subcommand(kProbeName, "")->group("");
  probe_app->callback([&command] { command = [] { return load_probe(); }; });
}

}  // namespace fargpu::cli

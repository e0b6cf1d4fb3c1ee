// fargpud: flags, configuration file, and the way into the daemon.
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <utility>

#include "common/base/descriptors.h"
#include "common/base/env.h"
#include "common/base/log.h"
#include "common/base/parse.h"
#include "common/transport/spin.h"
#include "server/daemon/config.h"
#include "server/daemon/daemon.h"
#include "server/launch/child_launcher.h"
#include "server/launch/sim_slot.h"

namespace {

using fargpu::Status;
using fargpu::StatusCode;
using fargpu::server::DaemonConfig;

constexpr int kExitFailure = 1, kExitUsage = 2;

// Exit codes tell scripts what to look at.
int exit_code(StatusCode code) {
  switch (code) {
    case StatusCode::kInvalidArgument:
      return kExitUsage;
    case StatusCode::kNotFound:
    case StatusCode::kDriver:
      return 3;
    default:
      return kExitFailure;
  }
}

int fail(const Status& status) {
  std::fprintf(stderr, "fargpud: %s\n", status.message().c_str());
  return exit_code(status.code());
}

// Every connection takes a descriptor, and shells allow 1024.
void allow_more_descriptors() {
  constexpr rlim_t kEnough = 65536;
  struct rlimit files {};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = std::max(files.rlim_cur, std::min(files.rlim_max, kEnough));
  (void)::setrlimit(RLIMIT_NOFILE, &files);
}

// What every worker reads, so that a mistake does not cost each session.
Status check_environment() {
  FARGPU_RETURN_IF_ERROR(
      fargpu::transport::spin_from_environment(fargpu::transport::SpinningEnd::kWorker).status());
  FARGPU_RETURN_IF_ERROR(fargpu::env_bool("FARGPU_GPUDIRECT", true).status());
  return fargpu::env_bytes("FARGPU_GPUDIRECT_FROM", 0).status();
}

std::string worker_beside_us() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  return (error ? std::filesystem::path("fargpu-worker") : self.parent_path() / "fargpu-worker")
      .string();
}

// A flag of size or time goes through our own parsers, so that files and flags read alike.
template <typename T>
std::string read_bytes(const std::string& text, T& target) {
  auto value = fargpu::parse_bytes(text);
  if (!value.ok()) return value.status().message();
  if (*value > std::numeric_limits<T>::max()) return text + " is too large";
  target = static_cast<T>(*value);
  return {};
}
template <typename D>
std::string read_duration(const std::string& text, D& target) {
  auto value = fargpu::parse_duration(text);
  if (!value.ok()) return value.status().message();
  target = std::chrono::duration_cast<D>(*value);
  return {};
}

void add_flags(CLI::App& app, DaemonConfig& c) {
  const auto bytes = [&app](const char* name, auto& target, const char* help) {
    app.add_option_function<std::string>(
           name,
           [&target, name](const std::string& text) {
             if (auto wrong = read_bytes(text, target); !wrong.empty())
               throw CLI::ValidationError(name, wrong);
           },
           help)
        ->type_name("SIZE");
  };
  const auto duration = [&app](const char* name, auto& target, const char* help) {
    app.add_option_function<std::string>(
           name,
           [&target, name](const std::string& text) {
             if (auto wrong = read_duration(text, target); !wrong.empty())
               throw CLI::ValidationError(name, wrong);
           },
           help)
        ->type_name("TIME");
  };
  app.add_option("--listen", c.listen,
                 "HOST:PORT (port 0: any free one) or the PATH of a unix socket; may be given "
                 "several times. Default: "
                 "0.0.0.0:14900 with a token file, otherwise 127.0.0.1:14900")
      ->type_name("WHERE")
      ->expected(1)
      ->take_all();
  app.add_option_function<std::string>(
         "--socket-mode",
         [&c](const std::string& text) {
           const auto mode = fargpu::server::parse_mode(text);
           if (!mode.ok()) throw CLI::ValidationError("--socket-mode", mode.status().message());
           c.socket_mode = *mode;
         },
         "permissions of unix sockets; to connect needs the right to write. Default: 0600, this "
         "user alone; 0660 lets the group in")
      ->type_name("MODE");
  app.add_option("--driver", c.driver,
                 "auto, sim (the simulated GPU), or the path of a libcuda.so.1");
  app.add_option("--sim-gpus", c.sim_gpus, "number of simulated GPUs")->check(CLI::Range(1, 16));
  app.add_option("--sim-memory", c.sim_memory, "memory of each simulated GPU, e.g. 8G")
      ->type_name("SIZE");
  app.add_option("--sim-compute-capability", c.sim_compute_capability,
                 "compute capability of the simulated GPUs, e.g. 9.0, or a list with one for each "
                 "GPU, e.g. 8.0,9.0; the last entry holds for all further GPUs");
  app.add_option("--sim-slot", c.sim_slot,
                 "address range of the simulated GPUs' memory: the daemons of one program need "
                 "different ones. Default: one that no other daemon of this host uses")
      ->check(CLI::Range(0, 31));
  app.add_option_function<std::vector<std::string>>(
         "--transports",
         [&c](const std::vector<std::string>& names) {
           c.transports.clear();
           for (const std::string& name : names) {
             if (const auto upgrade = fargpu::bootstrap::parse_upgrade(name))
               c.transports.push_back(*upgrade);
           }
         },
         "transports of sessions besides TCP and unix sockets: shm, rdma or none (default: "
         "shm,rdma)")
      ->delimiter(',')
      ->check(CLI::IsMember({"shm", "rdma", "none"}));
  app.add_option("--tcp-connections", c.tcp_connections,
                 "largest number of TCP connections of one session")
      ->check(CLI::Range(1, 16));
  app.add_option(
      "--token-file", c.token_file,
      "file whose first line is the token that clients must present; SIGHUP reads it again");
  app.add_option("--tls-cert", c.tls_cert,
                 "certificate chain (PEM): all TCP connections then use TLS; unix sockets do not");
  app.add_option("--tls-key", c.tls_key, "private key of the certificate (PEM)");
  app.add_option("--max-sessions", c.placement.max_sessions,
                 "largest number of sessions (processes that use a GPU), and of jobs")
      ->check(CLI::Range(1, 65535));
  app.add_option("--max-sessions-per-tenant", c.max_sessions_per_tenant,
                 "largest number of sessions, management sessions and jobs without either that one "
                 "user of unix sockets, or all with the token, may have; 0: no such limit")
      ->check(CLI::Range(0, 65535));
  app.add_option(
         "--max-sessions-per-gpu", c.placement.max_sessions_per_gpu,
         "largest number of jobs on one GPU, whatever their number of sessions; 1: each GPU "
         "serves one job")
      ->check(CLI::Range(1, 65535));
  app.add_flag("--oversubscribe-memory", c.placement.oversubscribe_memory,
               "the memory limits of a GPU's jobs may add up to more than its memory");
  bytes("--max-memory-per-job", c.max_memory_per_job,
        "the most memory of each GPU that a job may have, all its sessions together; 0: the GPU's");
  bytes("--memory-per-job", c.memory_per_job,
        "memory of a job that asks for none; 0: as much as it may have");
  bytes("--memory-per-session", c.memory_per_session, "older name of --max-memory-per-job");
  bytes("--host-memory-per-session", c.host_memory_per_session,
        "the most memory of this host that a session may have for data of its client. Default: "
        "half of this host's, or of the cgroup's");
  bytes("--max-ptx", c.max_ptx_bytes,
        "the most PTX of an image that a session may have compiled; 0: no limit");
  duration("--job-grace", c.job_grace,
           "how long a job without `fargpu run` keeps its GPUs after its last session, for further "
           "processes of the program, unless another job needs them");
  bytes("--max-frame", c.frame.max_body_bytes, "largest message of a frame");
  bytes("--max-bulk", c.frame.max_bulk_bytes, "largest piece of a copy");
  bytes("--image-cache", c.image_cache_bytes, "disk space for module images of one tenant");
  app.add_option("--image-tenants", c.image_tenants,
                 "number of tenants that may keep images, each as much as --image-cache")
      ->check(CLI::Range(1, 1024));
  app.add_option("--cache-dir", c.cache_dir,
                 "folder on the disk for module images. Default: CACHE_DIRECTORY or /var/tmp");
  app.add_option("--worker-open-files", c.worker.open_files, "limit of open files of a worker")
      ->check(CLI::Range(256, 1 << 20));
  app.add_option(
         "--worker-oom-score", c.worker.oom_score,
         "oom_score_adj of workers: out of memory, the system kills a worker and not the daemon")
      ->check(CLI::Range(0, 1000));
  app.add_flag("--worker-core-dumps", c.worker.core_dumps, "workers that crash leave a core dump");
  app.add_option("--workers-ahead", c.workers_ahead,
                 "number of idle workers for each GPU, started ahead of sessions with an open "
                 "driver and no GPU memory. 0: a worker is started with its session")
      ->check(CLI::Range(0, 64));
  duration("--worker-start", c.worker_start,
           "a worker whose driver is not open after this time is ended. 0s: no limit");
  duration("--silent-worker", c.silent_worker,
           "a worker that answers nothing for this time is ended: it was stopped, or hangs. 0s: it "
           "keeps its place");
  duration("--lost-client", c.lost_client,
           "a session over TCP or RDMA ends when its client's host answers nothing for this time. "
           "0s: when the system gives up");
  app.add_option(
      "--max-handshakes", c.max_handshakes,
      "largest number of connections before their admission; for one more, the longest silent "
      "one of the address with most of them leaves");
  duration("--hello-deadline", c.hello_deadline,
           "time limit for the hello of a connection, e.g. 5s");
  duration("--drain-seconds,--drain", c.drain, "how long sessions may go on after SIGTERM");
  app.add_option("--runtime-dir", c.runtime_dir,
                 "folder in which the daemon makes a private folder");
  app.add_option("--port-file,--print-port-file", c.port_file,
                 "file to write the bound TCP ports to");
  app.add_option("--log-level", c.log_level, "trace, debug, info, warn, error or off")
      ->check(
          CLI::IsMember(std::set<std::string>{"trace", "debug", "info", "warn", "error", "off"}));
}

}  // namespace

int main(int argc, char** argv) {
  // The parent process may have closed descriptors 0 to 2, and sockets would get their numbers.
  // Workers inherit them, too.
  fargpu::descriptors::open_standard(true);
  DaemonConfig config;
  std::string config_file, worker = worker_beside_us();
  CLI::App app{"fargpud: lends this machine's GPUs to programs on other machines."};
  app.set_version_flag("--version", "fargpud " FARGPU_VERSION);
  app.option_defaults()->always_capture_default(false);
  app.add_option("--config", config_file, "configuration file (TOML); flags win over it");
  app.add_option("--worker", worker, "path of fargpu-worker");
  add_flags(app, config);

  // Twice: first to find the file and to see that the flags are right, then over what the file
  // says.
  try {
    app.parse(argc, argv);
    if (!config_file.empty()) {
      config = DaemonConfig();
      if (Status status = fargpu::server::load_config(config_file, config); !status.ok())
        return fail(status);
      app.clear();
      app.parse(argc, argv);
    }
  } catch (const CLI::ParseError& error) {
    if (dynamic_cast<const CLI::Success*>(&error) != nullptr) return app.exit(error);
    std::fprintf(stderr, "fargpud: %s (see fargpud --help)\n", error.what());
    return kExitUsage;
  }
  if (!config.log_level.empty()) ::setenv("FARGPU_LOG", config.log_level.c_str(), 1);
  // A level that is none is reported here, and not by each worker.
  if (!fargpu::log::configure("daemon", fargpu::log::Level::kInfo)) ::unsetenv("FARGPU_LOG");
  if (Status status = check_environment(); !status.ok()) return fail(status);
  if (const uint64_t old = std::exchange(config.memory_per_session, 0); old != 0) {
    fargpu::log::warn(
        "event=older-name key=memory-per-session why=\"it is the most that a job may have: "
        "max-memory-per-job; memory-per-job is for a job that asks for none\"");
    if (config.max_memory_per_job == 0) config.max_memory_per_job = old;
  }

  allow_more_descriptors();
  fargpu::server::SimSlot slot;  // held until the end
  if (!config.sim_slot && std::getenv("FARGPU_SIM_SLOT") == nullptr) {
    slot = fargpu::server::claim_sim_slot();
    config.sim_slot = slot.number;
  }
  fargpu::server::SimUsage usage;  // likewise
  if (std::getenv("FARGPU_SIM_SHARED") == nullptr) {
    usage = fargpu::server::make_sim_usage();
    config.sim_shared = usage.path;
  }
  fargpu::server::ChildLauncher launcher;
  auto daemon = fargpu::server::Daemon::start(std::move(config), worker, launcher);
  if (!daemon.ok()) return fail(daemon.status());
  (*daemon)->run();
  return 0;
}

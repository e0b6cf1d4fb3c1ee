// fargpu-worker: the process of one session, started by fargpud; or the probe of a driver.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>

#include "common/base/env.h"
#include "common/base/log.h"
#include "common/bootstrap/upgrade.h"
#include "common/transport/spin.h"
#include "common/transport/tcp/stream.h"
#include "common/wire/control.h"
#include "generated/server/driver_table.h"
#include "server/handover/hello.h"
#include "server/handover/joined_connections.h"
#include "server/handover/worker_options.h"
#include "server/placement/job_memory.h"
#include "server/worker/driver_library.h"
#include "server/worker/executor.h"
#include "server/worker/probe.h"
#include "server/worker/session_watch.h"
#include "server/worker/welcome.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
// Of a library that was loaded by dlopen, as the driver is, LeakSanitizer of g++ 12 cannot read the
// thread-local storage: it crashes.
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_options() {
  return "use_tls=0";
}
#endif

namespace {

using namespace fargpu;
using namespace fargpu::server;

constexpr int kExitClient = 3, kExitDriver = 4;

void add_flags(CLI::App& app, WorkerOptions& o) {
  app.add_option("--session", o.session);
  app.add_option("--job", o.job);
  app.add_option("--job-slot", o.job_slot);
  app.add_option("--job-slots", o.job_slots);
  app.add_option("--parent", o.parent);
  app.add_option("--driver", o.driver);
  app.add_option("--memory", o.memory_bytes);
  app.add_option("--image-folder", o.image_folder);
  app.add_option("--image-cache", o.image_cache_bytes);
  app.add_option("--max-frame", o.limits.max_body_bytes);
  app.add_option("--max-bulk", o.limits.max_bulk_bytes);
  app.add_option("--client-max-frame", o.client_limits.max_body_bytes);
  app.add_option("--client-max-bulk", o.client_limits.max_bulk_bytes);
  app.add_option("--hello-sequence", o.hello_sequence);
  app.add_option_function<std::string>(
      "--priorities", [&o](const std::string& text) { o.priorities = parse_priorities(text); });
  app.add_option("--client", o.client);
  app.add_option_function<std::string>("--transports", [&o](const std::string& text) {
    o.transports = bootstrap::parse_upgrades(text);
  });
  app.add_option_function<std::string>(
      "--allowed", [&o](const std::string& text) { o.allowed = bootstrap::parse_upgrades(text); });
  app.add_option("--same-host", o.same_host);
  app.add_option_function<std::string>("--encrypted-peer", [&o](const std::string& text) {
    if (text != "none") o.encrypted_peer = text;
  });
  app.add_option("--connections", o.connections);
  app.add_option("--open-files", o.host_limits.open_files);
  app.add_option("--oom-score", o.host_limits.oom_score);
  app.add_option("--core-dumps", o.host_limits.core_dumps);
}

// What the end of a process looks for, _exit does not.
void look_for_leaks() {
#if defined(__SANITIZE_ADDRESS__)
  __lsan_do_recoverable_leak_check();
#endif
}

int run_probe(const std::string& driver) {
  // The driver's own chatter must not mix with the answer.
  const int answer = ::dup(STDOUT_FILENO);
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
  auto inventory = take_inventory(driver);
  const std::string text = inventory.ok() ? format_inventory(*inventory)
                                          : "error " + inventory.status().message() + "\n";
  [[maybe_unused]] const ssize_t written = ::write(answer, text.data(), text.size());
  std::fflush(nullptr);
  look_for_leaks();
  ::_exit(inventory.ok() ? 0 : kExitDriver);
}

// The daemon logs this line with the session's end.
int end(const Status& status, const char* otherwise, int code) {
  const std::string reason = status.ok() ? otherwise : status.message();
  [[maybe_unused]] const ssize_t written = ::write(kReasonFd, reason.data(), reason.size());
  std::fflush(nullptr);
  look_for_leaks();
  // Not exit(): handlers of a driver whose GPU hangs would hang with it, and the system takes
  // everything back anyway.
  ::_exit(code);
}

std::chrono::microseconds spin_time() {
  auto spin = transport::spin_from_environment(transport::SpinningEnd::kWorker);
  if (spin.ok()) return *spin;
  log::warn("event=ignored why=\"{}\"", spin.status().message());
  return transport::usual_spin(transport::SpinningEnd::kWorker);
}

DirectMemory::Options direct_options() {
  auto options = DirectMemory::Options::from_environment();
  if (options.ok()) return *options;
  log::warn("event=ignored why=\"{}\"", options.status().message());
  return {};
}

// Tells the client what it got, and lets it choose how frames shall travel.
Result<std::unique_ptr<transport::Transport>> open_transport(const DriverLibrary& driver,
                                                             const WorkerOptions& options,
                                                             SessionStatistics& statistics) {
  constexpr auto kConversation = std::chrono::seconds(30);
  const auto offers =
      bootstrap::make_offers(kSocketFd, options.transports,
                             {options.allowed, options.same_host, !options.encrypted_peer.empty()});
  bootstrap::FurtherConnections more{.most = options.connections};
  JoinedConnections joined;
  if (more.most > 1) {
    FARGPU_ASSIGN_OR_RETURN(joined, JoinedConnections::adopt(Fd(kJoinFd)));
    more.get = [&joined](size_t index, transport::Deadline deadline) {
      return joined.take(index, deadline);
    };
  }
  FARGPU_RETURN_IF_ERROR(send_welcome(kSocketFd, driver, options, offers, joined.key()));
  transport::StreamOptions stream;
  stream.receive_limits = options.limits;
  stream.max_send_body_bytes = options.client_limits.max_body_bytes;
  stream.spin = spin_time();
  if (!options.encrypted_peer.empty()) stream.behind = "tls " + options.encrypted_peer;
  FARGPU_ASSIGN_OR_RETURN(
      bootstrap::Upgraded made,
      bootstrap::upgrade_as_worker(Fd(kSocketFd), offers, stream,
                                   transport::Clock::now() + kConversation, more));
  for (const std::string& failure : made.failures)
    log::warn("event=transport-failed why=\"{}\"", failure);
  log::info("event=transport transport=\"{}\" why=\"{}\"", made.transport->describe(), made.reason);
  statistics.set_transport(made.transport->describe());
  return std::move(made.transport);
}

int run_session(const WorkerOptions& options) {
  const auto refuse = [&options](const Status& status) {
    const auto frame = encode_refusal(wire::kHello, options.hello_sequence, status, false);
    [[maybe_unused]] const ssize_t written = ::write(kSocketFd, frame.data(), frame.size());
    log::error("event=session-refused why=\"{}\"", status.message());
    return end(status, "", kExitDriver);
  };
  auto page = StatisticsPage::open(Fd(kStatisticsFd));
  if (!page.ok()) return refuse(page.status());
  auto job_memory = JobMemory::open(
      Fd(kJobFd),
      {static_cast<uint32_t>(options.priorities.size()), options.job_slots, options.memory_bytes},
      options.job_slot);
  if (!job_memory.ok()) return refuse(job_memory.status());
  auto output = capture_output();
  if (!output.ok()) return refuse(output.status());
  auto driver = DriverLibrary::open(options.driver);
  if (!driver.ok()) return refuse(driver.status());

  auto transport = open_transport(*driver, options, **page);
  if (!transport.ok()) {
    return transport.status().code() == StatusCode::kDriver
               ? refuse(transport.status())
               : end(transport.status(), "", kExitClient);
  }
  int devices = 0;
  driver->table().cuDeviceGetCount(&devices);
  WorkerSetup setup{static_cast<size_t>(devices),
                    options.memory_bytes,
                    options.image_folder,
                    options.image_cache_bytes,
                    options.client_limits,
                    direct_options(),
                    &*job_memory};
  SessionWorker worker(driver->table(), **transport, **page, *output, setup);
  Executor executor(worker, **transport, **page, spin_time());
  const auto watch = SessionWatch::start(
      (*transport)->peer_socket(), executor.activity(),
      [&worker, &executor] {
        worker.responder().try_notice(wire::kAlive, executor.activity().opcode());
      },
      [&options] {
        log::warn("event=executor-stuck client=\"{}\" why=\"a driver call did not return\"",
                  options.client);
        end(Status(), "the client went while a driver call did not return", 0);
      },
      {});
  if (!watch.ok()) log::warn("event=no-watch why=\"{}\"", watch.status().message());
  const Status status = executor.run();
  // A client that just goes away is daily business; one that breaks the protocol is not.
  const bool polite = status.ok() || status.code() == StatusCode::kLost;
  if (!polite)
    log::error("event=session-broken client=\"{}\" why=\"{}\"", options.client, status.message());
  (*transport)->close();
  return end(status, "the client said bye", polite ? 0 : kExitClient);
}

}  // namespace

int main(int argc, char** argv) {
  WorkerOptions options;
  bool probe = false;
  CLI::App app{"fargpu-worker: executes one session; started by fargpud."};
  app.set_version_flag("--version", "fargpu-worker " FARGPU_VERSION);
  app.add_flag("--probe", probe, "print the driver and its GPUs, and exit");
  add_flags(app, options);
  CLI11_PARSE(app, argc, argv);
  ::signal(SIGPIPE, SIG_IGN);
  if (probe) {
    log::configure("probe", log::Level::kInfo);
    return run_probe(options.driver.empty() ? "auto" : options.driver);
  }
  if (options.parent == 0) {
    std::fprintf(stderr,
                 "fargpu-worker is started by fargpud; by hand, only --probe makes sense\n");
    return 2;
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != options.parent) return 1;  // it died before the line above
  ::prctl(PR_SET_TIMERSLACK, 1000UL);           // short waits for the GPU are to be short
  for (const int descriptor : {kSocketFd, kReasonFd, kStatisticsFd, kJobFd})
    ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  if (options.connections > 1) ::fcntl(kJoinFd, F_SETFD, FD_CLOEXEC);
  log::configure(fmt::format("worker {:016x} job {:016x}", options.session, options.job),
                 log::Level::kInfo);
  apply(options.host_limits);
  return run_session(options);
}

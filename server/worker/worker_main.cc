// fargpu-worker: the process of one session, started by fargpud; or the probe of a driver.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/env.h"
#include "common/base/id_text.h"
#include "common/base/log.h"
#include "common/bootstrap/upgrade.h"
#include "common/transport/spin.h"
#include "common/transport/tcp/stream.h"
#include "common/wire/control.h"
#include "generated/server/driver_table.h"
#include "server/handover/hello.h"
#include "server/handover/joined_connections.h"
#include "server/handover/session_orders.h"
#include "server/handover/worker_messages.h"
#include "server/handover/worker_options.h"
#include "server/launch/peer_watch.h"
#include "server/nvml/session/management.h"
#include "server/placement/job_memory.h"
#include "server/worker/driver_library.h"
#include "server/worker/executor.h"
#include "server/worker/probe.h"
#include "server/worker/session_descriptors.h"
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

constexpr int kExitDaemon = 1, kExitClient = 3;

// The argument kAheadArgument, which lists of processes show until there is a session.
char* shown_as_ahead = nullptr;

void show_as_taken() {
  if (shown_as_ahead != nullptr) std::memset(shown_as_ahead, 0, std::strlen(shown_as_ahead));
}

// _exit() skips the leak check that exit() would do.
void look_for_leaks() {
#if defined(__SANITIZE_ADDRESS__)
  __lsan_do_recoverable_leak_check();
#endif
}

// The daemon logs this line with the session's end.
int end(const Status& status, const char* otherwise, int code, const char* limit = "") {
  constexpr auto kPatience = std::chrono::milliseconds(100);
  (void)send_message(kControlFd,
                     encode_last_words({status.ok() ? otherwise : status.message(), limit}),
                     transport::Clock::now() + kPatience);
  std::fflush(nullptr);
  look_for_leaks();
  // Not exit(): the exit handlers of a driver whose GPU hangs would hang, too.
  ::_exit(code);
}

// Ends the worker when its daemon ends, during any call or wait and with any parent: the daemon's
// end of their socket is closed then. Called only after the numbers of descriptors are kept.
Result<std::unique_ptr<PeerWatch>> live_with_daemon() {
  ::prctl(PR_SET_TIMERSLACK, 1000UL);  // short waits for the GPU are to be short
  return PeerWatch::start(
      kControlFd, [] { ::_exit(kExitDaemon); }, std::chrono::milliseconds(0));
}

int run_probe(const ProbeRequest& request) {
  const auto watch = live_with_daemon();
  if (!watch.ok()) return end(watch.status(), "", kExitDaemon);
  // Output of the driver goes to the daemon's log.
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
  const auto inventory =
      take_inventory(request.driver.empty() ? "auto" : request.driver, request.measures_contexts);
  (void)send_message(kControlFd, encode_inventory(inventory), transport::Clock::now());
  std::fflush(nullptr);
  look_for_leaks();
  ::_exit(inventory.ok() ? 0 : kExitDriver);
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

// The driver, and what it and device code print, which is taken before the driver is opened.
struct OpenDriver {
  CapturedOutput output;
  DriverLibrary driver;
};

Result<OpenDriver> open_driver(const std::string& path) {
  FARGPU_ASSIGN_OR_RETURN(CapturedOutput output, capture_output());
  FARGPU_ASSIGN_OR_RETURN(DriverLibrary driver, DriverLibrary::open(path));
  return OpenDriver{std::move(output), std::move(driver)};
}

// Not valid: the process has ended, or the kernel is older than pidfds.
Fd process_of(int32_t pid) {
  return Fd(pid > 0 ? static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)) : -1);
}

// Tells the client what it got, and lets it choose how frames shall travel.
Result<bootstrap::Upgraded> open_transport(const DriverLibrary& driver,
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
  log::info("event=transport transport=\"{}\" why=\"{}\"", made.describe(), made.reason);
  statistics.set_transport(made.describe());
  return made;
}

int run_session(const WorkerOptions& options, Result<OpenDriver> opened) {
  const auto refuse = [&options](const Status& status) {
    const auto frame = encode_refusal(wire::kHello, options.hello_sequence, status, false);
    [[maybe_unused]] const ssize_t written = ::write(kSocketFd, frame.data(), frame.size());
    log::error("event=session-refused why=\"{}\"", status.message());
    return end(status, "", kExitDriver);
  };
  auto page = StatisticsPage::open(Fd(kStatisticsFd));
  if (!page.ok()) return refuse(page.status());
  auto orders = OrdersPage::open(Fd(kOrdersFd), SharedPage::Access::kRead);
  if (!orders.ok()) return refuse(orders.status());
  auto job_memory = JobMemory::open(
      Fd(kJobFd),
      {static_cast<uint32_t>(options.priorities.size()), options.job_slots, options.memory_bytes},
      options.job_slot);
  if (!job_memory.ok()) return refuse(job_memory.status());
  if (!opened.ok()) return refuse(opened.status());
  auto& [output, driver] = *opened;

  auto link = open_transport(driver, options, **page);
  if (!link.ok()) {
    return link.status().code() == StatusCode::kDriver ? refuse(link.status())
                                                       : end(link.status(), "", kExitClient);
  }
  const auto& transport = link->transport;
  auto links = PeerLinks::create(kControlFd, options.daemon_version);
  if (!links.ok()) return end(links.status(), "", kExitDaemon);
  int devices = 0;
  driver.table().cuDeviceGetCount(&devices);
  SessionSetup setup{static_cast<size_t>(devices),
                     options.memory_bytes,
                     options.image_cache_bytes,
                     options.client_limits,
                     direct_options(),
                     &*job_memory,
                     {links->get(), {options.daemon, options.job, options.session}},
                     {kControlFd, options.daemon_version, &**orders},
                     options.host_memory_bytes,
                     options.max_ptx_bytes};
  const Fd client = process_of(options.client_pid);
  SessionWorker worker(driver.table(), *transport, **page, output, setup);
  worker.responder().client_knows(options.client_control);
  Executor executor(worker, *transport, **page, spin_time(),
                    {kControlFd, &**orders, links->get(), options.daemon_version,
                     transport->peer_socket(), client.get()});
  std::optional<BulkReceiver> bulk;
  if (link->bulk != nullptr) {
    bulk.emplace(std::move(link->bulk), worker.parts().ordered_copies, worker.parts().posted);
    executor.reads_beside(*bulk);
  }
  const auto watch = SessionWatch::start(
      transport->peer_socket(), executor.activity(),
      [&worker, &executor] {
        worker.responder().try_notice(wire::kAlive, executor.activity().opcode());
      },
      [&options, &executor] {
        constexpr const char* kWhy = "the client went while a driver call did not return";
        const Status lost(StatusCode::kLost, kWhy);
        if (executor.survives(lost)) return;
        log::warn("event=executor-stuck client=\"{}\" why=\"a driver call did not return\"",
                  options.client);
        end(lost, "", 0);
      },
      {.lost_after = options.lost_client},
      {(*links)->descriptor(),
       [&executor, &links = **links] {
         links.take([&executor] { return executor.commands().take(); });
         return true;
       }},
      client.get());
  if (!watch.ok()) log::warn("event=no-watch why=\"{}\"", watch.status().message());
  const Status status = executor.run();
  // A client may disconnect at any time, but must not break the protocol.
  const bool polite = status.ok() || status.code() == StatusCode::kLost;
  if (!polite)
    log::error("event=session-broken client=\"{}\" why=\"{}\"", options.client, status.message());
  transport->close();
  bulk.reset();
  if (executor.activity().host_silent()) {
    const Status silent(StatusCode::kLost,
                        fmt::format("the client's host answered nothing for {} s",
                                    std::chrono::duration<double>(options.lost_client).count()));
    return end(silent, "", 0, "lost-client");
  }
  return end(status, "the client said bye", polite ? 0 : kExitClient);
}

int manage(const WorkerOptions& options) {
  const Status status = run_management(options, [&options] {
    log::warn("event=nvml-stuck client=\"{}\" why=\"a call of NVML did not return\"",
              options.client);
    end(Status(), "the client went while a call of NVML did not return", 0);
  });
  const bool polite = status.ok() || status.code() == StatusCode::kLost;
  if (!polite)
    log::error("event=session-broken client=\"{}\" why=\"{}\"", options.client, status.message());
  return end(status, "the client said bye", polite ? 0 : kExitClient);
}

// Names the session in the log, and takes its limits.
void begin(const WorkerOptions& options) {
  log::configure(fmt::format("worker {} job {}", id_text(options.session), id_text(options.job)),
                 log::Level::kInfo);
  apply(options.host_limits);
}

int start_session(const WorkerOptions& options) {
  const auto watch = live_with_daemon();
  if (!watch.ok()) return end(watch.status(), "", kExitDaemon);
  for (const int descriptor : {kSocketFd, kControlFd, kStatisticsFd, kJobFd, kOrdersFd})
    ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  if (options.connections > 1) ::fcntl(kJoinFd, F_SETFD, FD_CLOEXEC);
  begin(options);
  return options.management ? manage(options) : run_session(options, open_driver(options.driver));
}

// Started ahead: all that can be done before the session is known, then a sleep until it comes.
int wait_for_session(const PrepareOptions& prepare) {
  ::fcntl(kControlFd, F_SETFD, FD_CLOEXEC);
  log::configure("worker ahead", log::Level::kInfo);
  apply(prepare.host_limits);
  if (const Status kept = reserve_session_descriptors(); !kept.ok())
    return end(kept, "", kExitDaemon);
  const auto watch = live_with_daemon();
  if (!watch.ok()) return end(watch.status(), "", kExitDaemon);
  auto opened = open_driver(prepare.driver);
  constexpr auto kPatience = std::chrono::seconds(10);
  (void)send_message(kControlFd, encode_prepared(opened.status()),
                     transport::Clock::now() + kPatience);
  // Also after an error: a session may be on its way, and is told why it cannot be.
  std::vector<Fd> descriptors;
  const auto first = receive_message(kControlFd, transport::kNoDeadline, &descriptors);
  if (first.status().code() == StatusCode::kLost) return end(opened.status(), "not needed", 0);
  if (!first.ok() || kind_of(*first) != WorkerMessage::kStart) {
    return end(first.ok() ? Status(StatusCode::kProtocol, "another message than start came")
                          : first.status(),
               "", kExitDaemon);
  }
  const auto options = parse_start(first->body());
  if (!options.ok()) return end(options.status(), "", kExitDaemon);
  show_as_taken();
  begin(*options);
  const Status placed = place_session_descriptors(std::move(descriptors), options->connections > 1);
  return placed.ok() ? run_session(*options, std::move(opened)) : end(placed, "", kExitDaemon);
}

// The daemon has sent its first message before it started us.
bool is_started_by_a_daemon() {
  int type = 0;
  socklen_t size = sizeof type;
  return ::getsockopt(kControlFd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET;
}

int obey(const ReceivedMessage& first) {
  if (kind_of(first) == WorkerMessage::kProbe) {
    log::configure("probe", log::Level::kInfo);
    const auto request = parse_probe(first.body());
    return request.ok() ? run_probe(*request) : end(request.status(), "", kExitDaemon);
  }
  if (kind_of(first) == WorkerMessage::kPrepare) {
    const auto prepare = parse_prepare(first.body());
    return prepare.ok() ? wait_for_session(*prepare) : end(prepare.status(), "", kExitDaemon);
  }
  if (kind_of(first) != WorkerMessage::kStart && kind_of(first) != WorkerMessage::kManage) {
    const auto why = fmt::format("the daemon's first message has kind {}", first.header.opcode);
    return end({StatusCode::kProtocol, why}, "", kExitDaemon);
  }
  auto options = parse_start(first.body());
  if (options.ok()) options->management = kind_of(first) == WorkerMessage::kManage;
  return options.ok() ? start_session(*options) : end(options.status(), "", kExitDaemon);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view argument = argc == 2 ? argv[1] : "";
  if (argument == "--version" || argument == "--help") {
    std::puts(argument == "--version"
                  ? "fargpu-worker " FARGPU_VERSION
                  : "fargpu-worker: executes one session; started by fargpud, not by hand.");
    return 0;
  }
  if (argument == kAheadArgument) {
    shown_as_ahead = argv[1];
  } else if (argc > 1) {
    std::fprintf(stderr, "fargpu-worker: unknown argument '%s'\n", argv[1]);
    return 2;
  }
  ::signal(SIGPIPE, SIG_IGN);
  if (!is_started_by_a_daemon()) {
    std::fprintf(stderr, "fargpu-worker is started by fargpud; by hand it is of no use\n");
    return 2;
  }
  constexpr auto kPatience = std::chrono::seconds(10);
  const auto first = receive_message(kControlFd, transport::Clock::now() + kPatience);
  if (!first.ok()) {
    log::configure("worker", log::Level::kInfo);
    log::error("event=not-started why=\"{}\"", first.status().message());
    return kExitDaemon;
  }
  (void)send_message(kControlFd, encode_started(), transport::Clock::now() + kPatience);
  return obey(*first);
}

#include "server/daemon/daemon.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>

#include "common/base/log.h"
#include "common/base/parse.h"
#include "common/bootstrap/host_identity.h"
#include "common/tls/tls_connection.h"
#include "common/wire/control.h"
#include "generated/schema/opcodes.h"
#include "server/daemon/handshake.h"
#include "server/daemon/listeners.h"
#include "server/daemon/runtime_folder.h"
#include "server/daemon/session_record.h"
#include "server/daemon/tls_relay.h"
#include "server/handover/child_process.h"
#include "server/handover/hello.h"
#include "server/handover/inventory.h"
#include "server/handover/token.h"
#include "server/handover/worker_options.h"

namespace fargpu::server {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using std::chrono::steady_clock;

// between asking the workers to end and ending them
constexpr auto kKillDelay = std::chrono::seconds(3);

std::vector<std::pair<std::string, std::string>> driver_environment(const DaemonConfig& config) {
  std::vector<std::pair<std::string, std::string>> result;
  if (config.sim_gpus != 0) result.emplace_back("FARGPU_SIM_GPUS", std::to_string(config.sim_gpus));
  if (!config.sim_memory.empty()) result.emplace_back("FARGPU_SIM_MEMORY", config.sim_memory);
  if (!config.sim_compute_capability.empty()) {
    result.emplace_back("FARGPU_SIM_COMPUTE_CAPABILITY", config.sim_compute_capability);
  }
  if (!config.log_level.empty()) result.emplace_back("FARGPU_LOG", config.log_level);
  return result;
}

std::string read_reason(const Fd& pipe) {
  char text[512];
  const ssize_t got = ::read(pipe.get(), text, sizeof text);
  return got > 0 ? printable(std::string_view(text, static_cast<size_t>(got)), sizeof text)
                 : std::string();
}

}  // namespace

struct Daemon::Impl {
  Impl(DaemonConfig c, std::string worker, RuntimeFolder f, Inventory i)
      : config(std::move(c)),
        worker_program(std::move(worker)),
        relays((std::filesystem::path(worker_program).parent_path() / "fargpu-tls-relay").string()),
        folder(std::move(f)),
        inventory(std::move(i)),
        pool(inventory.gpus, config.pool),
        listeners(loop, [this](Fd socket,
                               std::string peer) { accept(std::move(socket), std::move(peer)); }),
        signals(loop, SIGTERM, SIGINT, SIGHUP),
        drain_timer(loop) {
    signals.add(SIGCHLD);
  }

  void accept(Fd socket, std::string peer);
  void on_first_frame(const std::shared_ptr<Handshake>& handshake);
  void on_hello(Handshake& handshake);
  Status on_join(Handshake& handshake);
  Status open_session(Handshake& handshake, const HelloRequest& hello);
  Result<pid_t> start_worker(SessionRecord& session, Fd socket, const HelloRequest& hello,
                             uint32_t sequence, bool encrypted);
  void wait_for_signals();
  void on_signal(int number);
  void reap();
  void end(std::map<pid_t, SessionRecord>::iterator session, int wait_status);
  void drain();
  void kill_workers(int signal_number);
  void finish_when_drained();

  const DaemonConfig config;
  const std::string worker_program;
  TlsRelays relays;
  const RuntimeFolder folder;
  const Inventory inventory;
  HelloRules rules;
  const std::string host_id = bootstrap::host_identity();
  asio::io_context loop;
  Pool pool;
  Listeners listeners;
  asio::signal_set signals;
  asio::steady_timer drain_timer;
  const steady_clock::time_point started = steady_clock::now();
  std::map<pid_t, SessionRecord> sessions;
  uint64_t next_session = 1;
  uint32_t handshakes = 0;
  bool draining = false;
};

Daemon::Daemon(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Daemon::~Daemon() = default;

Result<std::unique_ptr<Daemon>> Daemon::start(DaemonConfig config, std::string worker_program) {
  FARGPU_RETURN_IF_ERROR(check_config(config));
  ::signal(SIGPIPE, SIG_IGN);
  std::string token;
  if (!config.token_file.empty()) {
    FARGPU_ASSIGN_OR_RETURN(token, read_token_file(config.token_file));
  }
  if (config.listen.empty()) {
    config.listen = default_listen(config);
    log::info("event=default-listen address={} why=\"{}\"", config.listen[0],
              token.empty()
                  ? "no token file: this machine only; use --token-file or --listen to serve others"
                  : "a token file is set");
  }
  // Each connection reads them anew; that they are wrong is said at once.
  if (!config.tls_cert.empty())
    FARGPU_RETURN_IF_ERROR(tls::TlsContext::server(config.tls_cert, config.tls_key).status());
  FARGPU_ASSIGN_OR_RETURN(Inventory inventory,
                          probe(worker_program, config.driver, driver_environment(config)));
  log::info("event=driver path={} version={}", inventory.driver_path, inventory.driver_version);
  for (const Gpu& gpu : inventory.gpus) {
    log::info("event=gpu uuid={} name=\"{}\" memory=\"{}\"", gpu.uuid, gpu.name,
              format_bytes(gpu.total_bytes));
  }
  FARGPU_ASSIGN_OR_RETURN(RuntimeFolder folder, RuntimeFolder::create(config.runtime_dir));
  auto impl = std::make_unique<Impl>(std::move(config), std::move(worker_program),
                                     std::move(folder), std::move(inventory));
  impl->rules = {wire::kProtocolVersion, schema::kRegistryHash, std::move(token)};
  impl->wait_for_signals();
  for (const std::string& where : impl->config.listen)
    FARGPU_RETURN_IF_ERROR(impl->listeners.add(where));
  if (!impl->config.port_file.empty()) {
    // Appears whole: whoever waits for the file may read it at once.
    const std::string part = impl->config.port_file + ".part";
    std::ofstream file(part);
    for (const uint16_t port : impl->listeners.ports()) file << port << "\n";
    file.close();
    if (!file || ::rename(part.c_str(), impl->config.port_file.c_str()) != 0) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("cannot write the port file {}", impl->config.port_file));
    }
  }
  return std::unique_ptr<Daemon>(new Daemon(std::move(impl)));
}

void Daemon::run() {
  log::info("event=ready version={}", FARGPU_VERSION);
  impl_->loop.run();
  log::info("event=stopped");
}

void Daemon::Impl::accept(Fd socket, std::string peer) {
  if (handshakes >= config.max_handshakes) {
    log::warn(
        "event=connection-dropped peer={} why=\"{} connections are at their hello, the limit\"",
        peer, handshakes);
    return;
  }
  ++handshakes;
  Handshake::Decrypt decrypt;
  if (!config.tls_cert.empty() && peer != "unix") {
    decrypt = [this, peer](Fd encrypted) {
      return relays.start(std::move(encrypted),
                          {config.tls_cert, config.tls_key, peer, config.hello_deadline.count()});
    };
  }
  std::make_shared<Handshake>(
      loop, std::move(socket), std::move(peer), config.hello_deadline,
      [this](const std::shared_ptr<Handshake>& handshake) { on_first_frame(handshake); },
      [this] { --handshakes; }, std::move(decrypt))
      ->start();
}

void Daemon::Impl::on_first_frame(const std::shared_ptr<Handshake>& handshake) {
  const wire::FrameHeader& header = handshake->header();
  Status status;
  if (handshake->in_the_clear()) {
    status = Status(
        StatusCode::kInvalidArgument,
        "this server takes encrypted connections only: use --tls, or tls:// before its name");
  } else if (header.opcode == wire::kHello) {
    return on_hello(*handshake);
  } else if (header.opcode == wire::kJoin) {
    status = on_join(*handshake);
    if (status.ok()) return;
  } else if (header.opcode == wire::kStatus) {
    auto hello = parse_hello(handshake->body());
    status = hello.ok() ? check_identity(*hello, rules) : hello.status();
    if (status.ok()) {
      const uint32_t accepts = hello->max_body_bytes != 0 ? hello->max_body_bytes : 1u << 20;
      return handshake->reply_and_close(
          encode_status(header.sequence, inventory, pool, sessions, started, accepts));
    }
  } else {
    status = Status(StatusCode::kProtocol,
                    fmt::format("the first frame must be a hello, not opcode {}", header.opcode));
  }
  log::warn("event=refused peer={} why=\"{}\"", handshake->peer(), status.message());
  handshake->reply_and_close(encode_refusal(header.opcode, header.sequence, status, false));
}

void Daemon::Impl::on_hello(Handshake& handshake) {
  const uint32_t sequence = handshake.header().sequence;
  auto hello = parse_hello(handshake.body());
  Status status = hello.ok() ? check_hello(*hello, rules) : hello.status();
  if (status.ok() && draining) {
    status = Status(StatusCode::kNoCapacity,
                    "the server is shutting down; use another one or try again later");
  }
  if (status.ok()) status = open_session(handshake, *hello);
  if (status.ok()) return;
  log::warn("event=refused peer={} client=\"{}\" why=\"{}\"", handshake.peer(),
            hello.ok() ? hello->client_name : "?", status.message());
  handshake.reply_and_close(encode_refusal(wire::kHello, sequence, status, draining));
}

// Whoever shows the key of a living session has been admitted with it. A wrong one is told no more
// than that.
Status Daemon::Impl::on_join(Handshake& handshake) {
  FARGPU_ASSIGN_OR_RETURN(const JoinRequest join, parse_join(handshake.body()));
  if (join.protocol_version != rules.protocol_version)
    return {StatusCode::kVersion, "the client speaks another protocol version"};
  const auto session = std::find_if(sessions.begin(), sessions.end(), [&](const auto& entry) {
    return entry.second.id == join.session;
  });
  if (session == sessions.end()) return {StatusCode::kRefused, "no session to join"};
  ConnectionJoiner& joiner = session->second.joiner;
  FARGPU_RETURN_IF_ERROR(joiner.check(join.key, join.index));
  const uint32_t sequence = handshake.header().sequence;
  const Fd socket = handshake.take_socket();
  const Status passed = joiner.pass(socket.get(), join.index);
  // Nothing else was ever written there, so that these few bytes need no waiting. The worker is
  // silent until the client has them.
  wire::FrameHeader welcome;
  welcome.opcode = wire::kJoin;
  welcome.flags = wire::kReply;
  welcome.sequence = sequence;
  const auto bytes = std::as_bytes(std::span(&welcome, 1));
  const auto answer = passed.ok() ? std::vector<std::byte>(bytes.begin(), bytes.end())
                                  : encode_refusal(wire::kJoin, sequence, passed, false);
  [[maybe_unused]] const ssize_t sent = ::write(socket.get(), answer.data(), answer.size());
  if (!passed.ok())
    log::warn("event=refused peer={} session={} why=\"{}\"", handshake.peer(), join.session,
              passed.message());
  return Status();
}

Status Daemon::Impl::open_session(Handshake& handshake, const HelloRequest& hello) {
  PlacementRequest wish = hello.placement;
  if (wish.memory_bytes == 0) wish.memory_bytes = config.memory_per_session;
  const uint64_t id = next_session++;
  FARGPU_ASSIGN_OR_RETURN(std::vector<size_t> gpus, pool.place(id, wish));
  auto page = StatisticsPage::create();
  if (!page.ok()) {
    pool.release(id);
    return page.status();
  }
  // Known before the socket is taken over.
  const bool encrypted = handshake.encrypted();
  SessionRecord session{id,
                        hello.client_name,
                        handshake.peer(),
                        std::move(gpus),
                        wish.memory_bytes,
                        -1,
                        steady_clock::now(),
                        std::move(*page),
                        Fd(),
                        ConnectionJoiner()};
  Fd socket = handshake.take_socket();
  // From here on the socket is ours: a refusal is written by hand, the handshake is over.
  const int descriptor = socket.get();
  auto pid = start_worker(session, Fd(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0)), hello,
                          handshake.header().sequence, encrypted);
  if (!pid.ok()) {
    pool.release(id);
    log::error("event=worker-failed session={} why=\"{}\"", id, pid.status().message());
    const auto refusal =
        encode_refusal(wire::kHello, handshake.header().sequence, pid.status(), false);
    [[maybe_unused]] const ssize_t sent = ::write(descriptor, refusal.data(), refusal.size());
    return Status();
  }
  session.pid = *pid;
  session.statistics.close_descriptor();
  std::string uuids;
  for (const size_t gpu : session.gpus) uuids += (uuids.empty() ? "" : ",") + pool.gpus()[gpu].uuid;
  log::info("event=session-begin session={} peer={} client=\"{}\" worker={} gpus={} memory={}", id,
            session.peer, session.client, session.pid, uuids, session.memory_bytes);
  sessions.emplace(*pid, std::move(session));
  return Status();
}

Result<pid_t> Daemon::Impl::start_worker(SessionRecord& session, Fd socket,
                                         const HelloRequest& hello, uint32_t sequence,
                                         bool encrypted) {
  if (!socket.valid()) return system_error("cannot duplicate the connection", errno);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return system_error("pipe", errno);
  session.reason.reset(ends[0]);
  const Fd reason_writer(ends[1]);

  WorkerOptions options;
  options.session = session.id;
  options.parent = ::getpid();
  options.driver = inventory.driver_path;
  options.memory_bytes = session.memory_bytes;
  options.image_folder = folder.images();
  options.image_cache_bytes = config.image_cache_bytes;
  options.limits = config.frame;
  options.client_limits = {hello.max_body_bytes, hello.max_bulk_bytes};
  options.hello_sequence = sequence;
  options.client = hello.client_name;
  options.transports = hello.transports;
  options.allowed = config.transports;
  options.host_limits = config.worker;
  options.same_host = !hello.host_id.empty() && hello.host_id == host_id;

  Fd join_end;
  if (encrypted) options.encrypted_peer = session.peer;
  // Only a session that comes over plain TCP can stay on it.
  options.connections =
      encrypted || session.peer == "unix" ? 1 : std::min(hello.connections, config.tcp_connections);
  if (options.connections > 1) {
    FARGPU_ASSIGN_OR_RETURN(auto joining, ConnectionJoiner::create(options.connections));
    session.joiner = std::move(joining.first);
    join_end = std::move(joining.second);
  }

  std::string visible;
  for (const size_t gpu : session.gpus) {
    visible += (visible.empty() ? "" : ",") + pool.gpus()[gpu].uuid;
    options.priorities.push_back(pool.gpus()[gpu].priorities);
  }

  ChildSetup setup;
  setup.program = worker_program;
  setup.arguments = options.to_arguments();
  setup.environment = driver_environment(config);
  setup.environment.emplace_back("CUDA_VISIBLE_DEVICES", visible);
  setup.descriptors = {{socket.get(), kSocketFd},
                       {reason_writer.get(), kReasonFd},
                       {session.statistics.descriptor(), kStatisticsFd}};
  if (join_end.valid()) setup.descriptors.emplace_back(join_end.get(), kJoinFd);
  return start_child(setup);
}

void Daemon::Impl::wait_for_signals() {
  signals.async_wait([this](const error_code& error, int number) {
    if (error) return;
    on_signal(number);
    wait_for_signals();
  });
}

void Daemon::Impl::on_signal(int number) {
  if (number == SIGCHLD) {
    relays.reap();
    return reap();
  }
  if (number == SIGHUP) {
    if (config.token_file.empty()) return;
    auto token = read_token_file(config.token_file);
    if (token.ok()) {
      rules.token = std::move(*token);
      log::info("event=token-reread");
    } else {
      log::error("event=token-kept why=\"{}\"", token.status().message());
    }
    return;
  }
  if (!draining) return drain();
  log::info("event=ending-now sessions={}", sessions.size());
  kill_workers(SIGKILL);
}

void Daemon::Impl::reap() {
  // By pid, never "any child": other children (a probe) belong to others.
  for (auto session = sessions.begin(); session != sessions.end();) {
    int wait_status = 0;
    const auto current = session++;
    if (::waitpid(current->first, &wait_status, WNOHANG) == current->first)
      end(current, wait_status);
  }
  finish_when_drained();
}

void Daemon::Impl::end(std::map<pid_t, SessionRecord>::iterator entry, int wait_status) {
  const SessionRecord& session = entry->second;
  const std::string reason = read_reason(session.reason);
  const bool expected = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0;
  log::format(
      expected ? log::Level::kInfo : log::Level::kError,
      "event=session-end session={} worker={} seconds={:.1f} calls={} how=\"{}\" why=\"{}\"",
      session.id, session.pid,
      std::chrono::duration<double>(steady_clock::now() - session.since).count(),
      session.statistics->calls.load(std::memory_order_relaxed), describe_wait_status(wait_status),
      reason.empty() ? "the worker gave no reason" : reason);
  folder.remove_uploads_of(session.pid);
  pool.release(session.id);
  sessions.erase(entry);
}

void Daemon::Impl::drain() {
  draining = true;
  log::info("event=draining sessions={} seconds={}", sessions.size(), config.drain.count());
  drain_timer.expires_after(config.drain);
  drain_timer.async_wait([this](const error_code& error) {
    if (error) return;
    log::warn("event=drain-over sessions={}", sessions.size());
    kill_workers(SIGTERM);
    drain_timer.expires_after(kKillDelay);
    drain_timer.async_wait([this](const error_code& cancelled) {
      if (!cancelled) kill_workers(SIGKILL);
    });
  });
  finish_when_drained();
}

void Daemon::Impl::kill_workers(int signal_number) {
  for (const auto& [pid, session] : sessions) ::kill(pid, signal_number);
}

void Daemon::Impl::finish_when_drained() {
  if (!draining || !sessions.empty()) return;
  listeners.stop();
  drain_timer.cancel();
  error_code ignored;
  signals.cancel(ignored);
  loop.stop();
}

}  // namespace fargpu::server

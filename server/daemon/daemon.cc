#include "server/daemon/daemon.h"

#include <fmt/core.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <filesystem>
#include <optional>

#include "common/base/log.h"
#include "common/base/parse.h"
#include "common/bootstrap/agreement.h"
#include "common/tls/tls_connection.h"
#include "common/wire/control.h"
#include "server/daemon/blind_gate.h"
#include "server/daemon/door.h"
#include "server/daemon/listeners.h"
#include "server/daemon/runtime_folder.h"
#include "server/daemon/sessions.h"
#include "server/daemon/status_report.h"
#include "server/daemon/tls_relay.h"
#include "server/handover/handshake.h"
#include "server/handover/hello.h"
#include "server/handover/inventory.h"
#include "server/handover/token.h"
#include "server/job/image_broker.h"
#include "server/job/image_files.h"
#include "server/job/job_keeper.h"
#include "server/launch/daemon_log.h"
#include "server/launch/logged_launcher.h"
#include "server/placement/host_placement.h"

namespace fargpu::server {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using std::chrono::steady_clock;

// After the drain: the time for what was submitted to end, on the GPUs and in host functions; then
// from SIGTERM to SIGKILL, and from that to the daemon's end, whatever workers do. Together with
// the drain less than TimeoutStopSec of fargpud.service.
constexpr auto kFinishTime = std::chrono::seconds(8), kKillDelay = std::chrono::seconds(1);
// Behind the last session, if sessions were cut.
constexpr auto kForQuestions = std::chrono::milliseconds(500);

constexpr uint64_t kMostImages = 4096;  // of a tenant

// For a few bytes, the first on their connection: they fit into the socket's buffer.
void write_at_once(const Fd& socket, const std::vector<std::byte>& frame) {
  [[maybe_unused]] const ssize_t sent =
      ::send(socket.get(), frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

Status draining_status() {
  return {StatusCode::kNoCapacity,
          "the server is shutting down; use another one or try again later"};
}

ImageBroker::Rules image_rules(const DaemonConfig& config) {
  std::string folder = image_folder(config);
  if (const Status usable = try_image_files(folder); !usable.ok()) {
    log::warn("event=no-images-kept why=\"{}\" remedy=\"--cache-dir names another folder\"",
              usable.message());
    folder.clear();
  }
  // Each is a descriptor of the daemon, which needs some for other things.
  rlimit files{};
  (void)::getrlimit(RLIMIT_NOFILE, &files);
  const uint64_t most = std::min<uint64_t>(kMostImages, files.rlim_cur / 4 / config.image_tenants);
  return {std::move(folder), config.image_cache_bytes, static_cast<uint32_t>(most),
          config.image_tenants};
}

// What the standard library, Asio or Cap'n Proto throws becomes the failure of this one thing.
template <typename Work>
Status caught(Work&& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    return {StatusCode::kSystem, error.what()};
  }
}

}  // namespace

struct Daemon::Impl {
  Impl(DaemonConfig c, std::string worker, Launcher& l, RuntimeFolder f, Inventory i)
      : config(std::move(c)),
        worker_program(std::move(worker)),
        folder(std::move(f)),
        inventory(std::move(i)),
        door(config.max_handshakes),
        daemon_log(loop),
        launcher(loop, l),
        relays(loop, launcher,
               (std::filesystem::path(worker_program).parent_path() / "fargpu-tls-relay").string()),
        placement(inventory.units, config.placement),
        keeper(loop, placement, ids,
               {config.placement.max_sessions, config.job_grace, config.memory_per_job,
                config.max_memory_per_job},
               [this](uint64_t job) { sessions.end_management(job); }),
        ahead(loop, launcher,
              {config.workers_ahead,
               worker_program,
               {inventory.driver_path, config.worker},
               driver_environment(config)},
              likely_grants(placement)),
        images(loop, image_rules(config)),
        sessions({config, worker_program, folder, inventory, loop, launcher, images, &ahead}, ids,
                 [this](const SessionRecord& session) {
                   session.management ? keeper.look_away(session.seat.job)
                                      : keeper.leave(session.seat);
                   asio::post(loop, [this] { finish_when_drained(); });
                 }),
        blind_gate(loop, sessions),
        listeners(
            loop,
            [this](Fd socket, std::string peer) { accept(std::move(socket), std::move(peer)); },
            [this] { return door.evict(); }),
        signals(loop, SIGTERM, SIGINT, SIGHUP),
        drain_timer(loop) {}

  void accept(Fd socket, std::string peer);
  Status begin_handshake(Fd socket, const std::string& peer);
  void on_first_frame(const std::shared_ptr<Handshake>& handshake);
  // What the first frame asks for is given: now, or once what has ended has given back what it had.
  enum class Attempt { kFirst, kLast };
  void admit(const std::shared_ptr<Handshake>& handshake, Attempt attempt);
  void try_to_admit(const std::shared_ptr<Handshake>& handshake, Attempt attempt);
  Status on_hello(Handshake& handshake);
  Status on_join(Handshake& handshake);
  Status on_open_job(Handshake& handshake);
  Status on_session_end(Handshake& handshake) const;
  Status open_session(Handshake& handshake, const HelloRequest& hello);
  Status open_management(Handshake& handshake, const HelloRequest& hello);
  TenantId tenant_of(const Handshake& handshake) const;
  void wait_for_signals();
  void on_signal(int number);
  void drain();
  void kill_all(const char* why);
  void finish_when_drained();
  void finish();

  const DaemonConfig config;
  const std::string worker_program;
  const RuntimeFolder folder;
  const Inventory inventory;
  HelloRules rules;
  Door door;  // connections leave it until the loop has gone
  asio::io_context loop;
  DaemonLog daemon_log;
  LoggedLauncher launcher;
  TlsRelays relays;
  IdSequence ids;
  HostPlacement placement;
  JobKeeper keeper;
  WorkersAhead ahead;
  ImageBroker images;
  Sessions sessions;
  BlindGate blind_gate;
  Listeners listeners;
  asio::signal_set signals;
  asio::steady_timer drain_timer;
  const steady_clock::time_point started = steady_clock::now();
  bool draining = false;
  bool ending = false;  // the sessions are being ended: no more of them, from whatever job
};

Daemon::Daemon(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Daemon::~Daemon() = default;

Result<std::unique_ptr<Daemon>> Daemon::start(DaemonConfig config, std::string worker_program,
                                              Launcher& launcher) {
  FARGPU_RETURN_IF_ERROR(check_config(config));
  ::signal(SIGPIPE, SIG_IGN);
  if (!config.cache_dir.empty() && !std::filesystem::is_directory(config.cache_dir))
    return Status(StatusCode::kInvalidArgument, config.cache_dir + " (--cache-dir) is no folder");
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
  // Each connection reads the files again; this check reports mistakes at the start.
  if (!config.tls_cert.empty())
    FARGPU_RETURN_IF_ERROR(tls::TlsContext::server(config.tls_cert, config.tls_key).status());
  FARGPU_ASSIGN_OR_RETURN(Inventory inventory, probe(launcher, worker_program, config.driver,
                                                     driver_environment(config)));
  log::info("event=driver path={} version={}", inventory.driver_path, inventory.driver_version);
  for (const Unit& gpu : inventory.units) {
    log::info("event=gpu uuid={} name=\"{}\" memory=\"{}\"", gpu.uuid, gpu.name,
              format_bytes(gpu.total_bytes));
  }
  FARGPU_ASSIGN_OR_RETURN(RuntimeFolder folder, RuntimeFolder::create(config.runtime_dir));
  auto impl = std::make_unique<Impl>(std::move(config), std::move(worker_program), launcher,
                                     std::move(folder), std::move(inventory));
  impl->rules = {wire::kProtocolVersion, std::move(token)};
  FARGPU_ASSIGN_OR_RETURN(auto phases, BlindGate::phases_from_environment());
  impl->blind_gate.start(std::move(phases));
  impl->wait_for_signals();
  for (const std::string& where : impl->config.listen) {
    FARGPU_RETURN_IF_ERROR(impl->listeners.add(where, impl->config.socket_mode));
    if (impl->rules.token.empty() && is_for_other_machines(where)) {
      log::warn(
          "event=open-to-everybody address={} why=\"no token file: whoever reaches this address "
          "may use the GPUs; use --token-file\"",
          where);
    }
  }
  if (!impl->config.port_file.empty())
    FARGPU_RETURN_IF_ERROR(impl->listeners.write_ports(impl->config.port_file));
  return std::unique_ptr<Daemon>(new Daemon(std::move(impl)));
}

void Daemon::run() {
  log::info("event=ready version={}", FARGPU_VERSION);
  impl_->ahead.start();
  // An exception ends what its handler was for, and nothing else.
  while (!impl_->loop.stopped()) {
    const Status status = caught([this] {
      impl_->loop.run();
      return Status();
    });
    if (!status.ok()) log::error("event=handler-failed why=\"{}\"", status.message());
  }
  log::info("event=stopped");
}

void Daemon::Impl::accept(Fd socket, std::string peer) {
  const Status status = caught([&] { return begin_handshake(std::move(socket), peer); });
  if (!status.ok())
    log::warn("event=connection-dropped peer={} why=\"{}\"", peer, status.message());
}

Status Daemon::Impl::begin_handshake(Fd socket, const std::string& peer) {
  if (!door.make_room()) {
    return {StatusCode::kNoCapacity,
            fmt::format("{} connections wait for their admission, the limit", door.count())};
  }
  Handshake::Decrypt decrypt;
  if (!config.tls_cert.empty() && peer != "unix") {
    decrypt = [this, peer](Fd encrypted) {
      if (!door.make_room_for_relay())
        return Result<Fd>(Status(StatusCode::kNoCapacity, "no room for a relay of TLS"));
      notice_dead_peers(encrypted.get(), {});
      return relays.start(std::move(encrypted),
                          {config.tls_cert, config.tls_key, peer, config.hello_deadline.count()});
    };
  }
  const auto begun = std::make_shared<Handshake>(
      loop, std::move(socket), peer, config.hello_deadline,
      [this](const std::shared_ptr<Handshake>& handshake) { on_first_frame(handshake); },
      [this](const Handshake& handshake) { door.leave(handshake); }, std::move(decrypt));
  door.enter(*begun);
  begun->start();
  return Status();
}

void Daemon::Impl::on_first_frame(const std::shared_ptr<Handshake>& handshake) {
  try_to_admit(handshake, Attempt::kFirst);
}

void Daemon::Impl::try_to_admit(const std::shared_ptr<Handshake>& handshake, Attempt attempt) {
  const Status status = caught([&] {
    admit(handshake, attempt);
    return Status();
  });
  if (status.ok()) return;
  log::warn("event=connection-dropped peer={} why=\"{}\"", handshake->peer(), status.message());
  handshake->evict();
}

void Daemon::Impl::admit(const std::shared_ptr<Handshake>& handshake, Attempt attempt) {
  const wire::FrameHeader& header = handshake->header();
  Status status;
  if (handshake->in_the_clear()) {
    status = Status(
        StatusCode::kInvalidArgument,
        "this server takes encrypted connections only: use --tls, or tls:// before its name");
  } else if (header.opcode == wire::kHello || header.opcode == wire::kManage) {
    status = on_hello(*handshake);
    if (status.ok()) return;
  } else if (header.opcode == wire::kJoin) {
    status = on_join(*handshake);
    if (status.ok()) return;
  } else if (header.opcode == wire::kOpenJob) {
    status = on_open_job(*handshake);
    if (status.ok()) return;
  } else if (header.opcode == wire::kStatus) {
    auto hello = parse_hello(handshake->body());
    status = hello.ok() ? check_identity(*hello, rules) : hello.status();
    if (status.ok()) {
      const uint32_t accepts = hello->max_body_bytes != 0 ? hello->max_body_bytes : 1u << 20;
      return handshake->reply_and_close(encode_status(
          header.sequence, {inventory, placement, keeper.jobs(), sessions, started}, accepts));
    }
  } else if (header.opcode == wire::kSessionEnd) {
    status = on_session_end(*handshake);
    if (status.ok()) return;
  } else if (bootstrap::known_opcodes().contains(header.opcode)) {
    status = Status(StatusCode::kProtocol,
                    fmt::format("the first frame must be a hello, not opcode {}", header.opcode));
  } else {
    status = Status(StatusCode::kVersion,
                    fmt::format("this server (fargpu {}) does not know opcode {}, with which the "
                                "client begins; install a newer release on the server",
                                FARGPU_VERSION, header.opcode));
  }
  if (status.code() == StatusCode::kNoCapacity && !draining && attempt == Attempt::kFirst) {
    return sessions.await_ended({}, 0,
                                [this, handshake] { try_to_admit(handshake, Attempt::kLast); });
  }
  const auto hello = parse_hello(handshake->body());
  const bool hellos = header.opcode == wire::kHello || header.opcode == wire::kManage;
  log::warn("event=refused peer={} client=\"{}\" why=\"{}\"", handshake->peer(),
            hellos && hello.ok() ? hello->client_name : "?", status.message());
  handshake->reply_and_close(
      encode_refusal(header.opcode, header.sequence, status,
                     (hellos || header.opcode == wire::kOpenJob) && draining));
}

Status Daemon::Impl::on_session_end(Handshake& handshake) const {
  FARGPU_ASSIGN_OR_RETURN(const HelloRequest hello, parse_hello(handshake.body()));
  FARGPU_RETURN_IF_ERROR(check_identity(hello, rules));
  const auto [state, why] = sessions.end_of(hello.ended_session, tenant_of(handshake));
  handshake.reply_and_close(encode_session_end(handshake.header().sequence, state, why));
  return Status();
}

Status Daemon::Impl::on_hello(Handshake& handshake) {
  const wire::FrameHeader& header = handshake.header();
  auto hello = parse_hello(handshake.body());
  Status status = hello.ok() ? check_hello(*hello, rules) : hello.status();
  if (status.ok() && draining && (ending || !keeper.jobs().knows(hello->job)))
    status = draining_status();
  if (!status.ok()) return status;
  return header.opcode == wire::kManage ? open_management(handshake, *hello)
                                        : open_session(handshake, *hello);
}

Status Daemon::Impl::on_join(Handshake& handshake) {
  FARGPU_ASSIGN_OR_RETURN(const JoinRequest join, parse_join(handshake.body()));
  if (join.protocol_version != rules.protocol_version)
    return {StatusCode::kVersion, "the client speaks another protocol version"};
  FARGPU_RETURN_IF_ERROR(sessions.check(join));
  const uint32_t sequence = handshake.header().sequence;
  const Fd socket = handshake.take_socket();
  const Status passed = sessions.pass(join, socket.get());
  // The worker sends nothing before this answer.
  wire::FrameHeader welcome;
  welcome.opcode = wire::kJoin;
  welcome.flags = wire::kReply;
  welcome.sequence = sequence;
  const auto bytes = std::as_bytes(std::span(&welcome, 1));
  write_at_once(socket, passed.ok() ? std::vector<std::byte>(bytes.begin(), bytes.end())
                                    : encode_refusal(wire::kJoin, sequence, passed, false));
  if (!passed.ok())
    log::warn("event=refused peer={} session={} why=\"{}\"", handshake.peer(),
              id_text(join.session), passed.message());
  return Status();
}

Status Daemon::Impl::on_open_job(Handshake& handshake) {
  FARGPU_ASSIGN_OR_RETURN(const HelloRequest hello, parse_open_job(handshake.body()));
  FARGPU_RETURN_IF_ERROR(check_opener(hello, rules));
  if (draining) return draining_status();
  FARGPU_ASSIGN_OR_RETURN(const bootstrap::JobTicket ticket,
                          keeper.open(hello, handshake.peer(), tenant_of(handshake)));
  Fd socket = handshake.take_socket();
  notice_dead_peers(socket.get(), config.lost_client);
  keeper.attach(ticket, std::move(socket), handshake.header().sequence);
  return Status();
}

Status Daemon::Impl::open_session(Handshake& handshake, const HelloRequest& hello) {
  FARGPU_ASSIGN_OR_RETURN(const Jobs::Seat seat,
                          keeper.enter(hello, handshake.peer(), tenant_of(handshake)));
  const bool encrypted = handshake.encrypted();
  const uint32_t sequence = handshake.header().sequence;
  const Fd socket = handshake.take_socket();
  // The handshake is over: a refusal is written to the socket directly.
  const Status started = caught([&] {
    return sessions.start(
        {*keeper.find(seat.job), seat, hello, socket.get(), handshake.peer(), encrypted, sequence});
  });
  if (started.ok()) return Status();
  keeper.leave(seat);
  write_at_once(socket, encode_refusal(wire::kHello, sequence, started, false));
  return Status();
}

Status Daemon::Impl::open_management(Handshake& handshake, const HelloRequest& hello) {
  FARGPU_ASSIGN_OR_RETURN(const uint64_t job,
                          keeper.look_at(hello, handshake.peer(), tenant_of(handshake)));
  const bool encrypted = handshake.encrypted();
  const uint32_t sequence = handshake.header().sequence;
  const Fd socket = handshake.take_socket();
  const Status started = caught([&] {
    return sessions.start({*keeper.find(job), Jobs::Seat{job, 0}, hello, socket.get(),
                           handshake.peer(), encrypted, sequence, /*management=*/true});
  });
  if (started.ok()) return Status();
  keeper.look_away(job);
  write_at_once(socket, encode_refusal(wire::kManage, sequence, started, false));
  return Status();
}

TenantId Daemon::Impl::tenant_of(const Handshake& handshake) const {
  return server::tenant_of(handshake.encrypted() ? -1 : handshake.socket(), rules.token);
}

void Daemon::Impl::wait_for_signals() {
  signals.async_wait([this](const error_code& error, int number) {
    if (error) return;
    wait_for_signals();
    on_signal(number);
  });
}

void Daemon::Impl::on_signal(int number) {
  if (number == SIGHUP) {
    ahead.look_at_files();
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
  ending = true;
  log::info("event=ending-now sessions={}", sessions.all().size());
  kill_all("a second signal ended the daemon at once");
}

// A process that sits in the kernel goes when that lets it: the daemon does not wait for it.
void Daemon::Impl::kill_all(const char* why) {
  sessions.kill_all(why);
  drain_timer.expires_after(kKillDelay);
  drain_timer.async_wait([this](const error_code& error) {
    if (error) return;
    log::error("event=workers-left sessions={} why=\"they cannot be killed\"",
               sessions.all().size());
    finish();
  });
}

void Daemon::Impl::drain() {
  draining = true;
  ahead.stop();
  blind_gate.stop();
  log::info("event=draining sessions={} seconds={}", sessions.all().size(), config.drain.count());
  drain_timer.expires_after(config.drain);
  drain_timer.async_wait([this](const error_code& error) {
    if (error) return;
    ending = true;
    log::warn("event=drain-over sessions={}", sessions.all().size());
    sessions.finish_all(kFinishTime);
    drain_timer.expires_after(kFinishTime + kKillDelay);
    drain_timer.async_wait([this](const error_code& cancelled) {
      if (!cancelled) kill_all("its worker did not end after the drain");
    });
  });
  finish_when_drained();
}

void Daemon::Impl::finish_when_drained() {
  if (draining && sessions.only_management()) sessions.end_management();
  if (!draining || !sessions.all().empty()) return;
  if (!ending) return finish();
  // Clients whose sessions were cut may ask why.
  drain_timer.expires_after(kForQuestions);
  drain_timer.async_wait([this](const error_code& error) {
    if (!error) finish();
  });
}

void Daemon::Impl::finish() {
  listeners.stop();
  keeper.close();
  drain_timer.cancel();
  error_code ignored;
  signals.cancel(ignored);
  loop.stop();
}

}  // namespace fargpu::server

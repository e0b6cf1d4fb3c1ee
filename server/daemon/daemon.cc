#include "server/daemon/daemon.h"

#include <fmt/core.h>
#include <signal.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <filesystem>

#include "common/base/log.h"
#include "common/base/parse.h"
#include "common/tls/tls_connection.h"
#include "server/daemon/daemon_impl.h"
#include "server/handover/inventory.h"
#include "server/handover/token.h"

namespace fargpu::server {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

// After the drain: the time for what was submitted to end, on the GPUs and in host functions; then
// from SIGTERM to SIGKILL, and from that to the daemon's end, whatever workers do. Together with
// the drain less than TimeoutStopSec of fargpud.service.
constexpr auto kFinishTime = std::chrono::seconds(8), kKillDelay = std::chrono::seconds(1);
// Of a GPU that is in doubt, unless worker-start is shorter.
constexpr std::chrono::milliseconds kLongestProbe = std::chrono::seconds(30);
// Behind the last session, if sessions were cut.
constexpr auto kForQuestions = std::chrono::milliseconds(500);

}  // namespace

Daemon::Impl::Impl(DaemonConfig c, std::string worker, Launcher& l, RuntimeFolder f, Inventory i)
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
              config.max_memory_per_job, config.max_sessions_per_tenant},
             [this](uint64_t job) { sessions.end_management(job); }),
      ahead(loop, launcher,
            {config.workers_ahead,
             worker_program,
             {inventory.driver_path, config.worker},
             driver_environment(config)},
            likely_grants(placement)),
      health(loop, launcher,
             {worker_program, inventory.driver_path, driver_environment(config),
              config.worker_start.count() == 0 ? kLongestProbe
                                               : std::min(kLongestProbe, config.worker_start)},
             placement,
             [this](size_t unit, const std::string& why) { set_out_of_service(unit, why); }),
      images(loop, image_rules(config)),
      sessions({config, worker_program, folder, inventory, loop, launcher, images, &ahead,
                [this](size_t unit, int hanging) { on_trouble(unit, hanging); }},
               ids,
               [this](const SessionRecord& session) {
                 session.management ? keeper.look_away(session.seat.job)
                                    : keeper.leave(session.seat);
                 asio::post(loop, [this] { finish_when_drained(); });
               }),
      blind_gate(loop, sessions),
      listeners(
          loop, [this](Fd socket, std::string peer) { accept(std::move(socket), std::move(peer)); },
          [this] { return door.evict(); }),
      signals(loop, SIGTERM, SIGINT, SIGHUP),
      drain_timer(loop) {
  ahead.on_failure([this](size_t unit) { on_trouble(unit, 0); });
}

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
  if (!config.tls_cert.empty()) {
    FARGPU_RETURN_IF_ERROR(check_secret_file("TLS key", config.tls_key));
    FARGPU_RETURN_IF_ERROR(tls::TlsContext::server(config.tls_cert, config.tls_key).status());
  }
  FARGPU_ASSIGN_OR_RETURN(Inventory inventory, probe(launcher, worker_program, config.driver,
                                                     driver_environment(config)));
  log::info("event=driver path={} version={}", inventory.driver_path, inventory.driver_version);
  for (const Unit& gpu : inventory.units) {
    log::info("event=gpu uuid={} name=\"{}\" memory=\"{}\" context=\"{}\"", gpu.uuid, gpu.name,
              format_bytes(gpu.total_bytes), format_bytes(gpu.context_bytes));
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

void Daemon::Impl::on_trouble(size_t unit, int hanging) {
  if (hanging == 0) return health.suspect(unit);
  health.take_out(unit, fmt::format("a worker hangs in its driver, process {}", hanging));
}

void Daemon::Impl::set_out_of_service(size_t unit, const std::string& why) {
  placement.set_out_of_service(unit, why);
  ahead.set_in_service(unit, why.empty());
  const std::string& uuid = inventory.units[unit].uuid;
  if (why.empty()) return log::warn("event=gpu-back gpu={} uuid={}", unit, uuid);
  log::error("event=gpu-out-of-service gpu={} uuid={} why=\"{}\"", unit, uuid, why);
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
  health.stop();
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

// The daemon's parts and what it does with them: connections and their admission
// (daemon_admission.cc), its start and its end (daemon.cc).
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>

#include "common/base/fd.h"
#include "common/base/status.h"
#include "server/daemon/blind_gate.h"
#include "server/daemon/config.h"
#include "server/daemon/daemon.h"
#include "server/daemon/door.h"
#include "server/daemon/listeners.h"
#include "server/daemon/runtime_folder.h"
#include "server/daemon/sessions.h"
#include "server/handover/handshake.h"
#include "server/handover/hello.h"
#include "server/handover/inventory.h"
#include "server/job/image_broker.h"
#include "server/job/job_keeper.h"
#include "server/job/unit_health.h"
#include "server/launch/daemon_log.h"
#include "server/launch/logged_launcher.h"
#include "server/launch/tls_relay.h"
#include "server/placement/host_placement.h"

namespace fargpu::server {

// What the standard library, Asio or Cap'n Proto throws becomes the failure of this one thing.
template <typename Work>
Status caught(Work&& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    return {StatusCode::kSystem, error.what()};
  }
}

struct Daemon::Impl {
  Impl(DaemonConfig c, std::string worker, Launcher& l, RuntimeFolder f, Inventory i);

  void accept(Fd socket, std::string peer);
  Status begin_handshake(Fd socket, const std::string& peer);
  void on_first_frame(const std::shared_ptr<Handshake>& handshake);
  // What the first frame asks for is given: now, or once what has ended has given back what it had.
  enum class Attempt { kFirst, kLast };
  void admit(const std::shared_ptr<Handshake>& handshake, Attempt attempt);
  void try_to_admit(const std::shared_ptr<Handshake>& handshake, Attempt attempt);
  // Also what it asks for is given. Not ok: it is refused, or tried again.
  Status answer(Handshake& handshake);
  Status on_hello(Handshake& handshake);
  Status on_join(Handshake& handshake);
  Status on_open_job(Handshake& handshake);
  Status on_status(Handshake& handshake) const;
  Status on_session_end(Handshake& handshake) const;
  Status open_session(Handshake& handshake, const HelloRequest& hello);
  Status open_management(Handshake& handshake, const HelloRequest& hello);
  TenantId tenant_of(const Handshake& handshake) const;
  void on_trouble(size_t unit, int hanging);
  void set_out_of_service(size_t unit, const std::string& why);
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
  boost::asio::io_context loop;
  DaemonLog daemon_log;
  LoggedLauncher launcher;
  TlsRelays relays;
  IdSequence ids;
  HostPlacement placement;
  JobKeeper keeper;
  WorkersAhead ahead;
  UnitHealth health;
  ImageBroker images;
  Sessions sessions;
  BlindGate blind_gate;
  Listeners listeners;
  boost::asio::signal_set signals;
  boost::asio::steady_timer drain_timer;
  const std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
  bool draining = false;
  bool ending = false;  // the sessions are being ended: no more of them, from whatever job
};

}  // namespace fargpu::server

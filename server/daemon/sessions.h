// The sessions of a daemon: starts a worker process for each and sees to its end. On the daemon's
// event loop.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "common/base/status.h"
#include "server/daemon/config.h"
#include "server/daemon/runtime_folder.h"
#include "server/daemon/worker_link.h"
#include "server/daemon/workers_ahead.h"
#include "server/handover/hello.h"
#include "server/handover/inventory.h"
#include "server/handover/joined_connections.h"
#include "server/handover/session_orders.h"
#include "server/handover/session_statistics.h"
#include "server/job/ended_clients.h"
#include "server/job/id_sequence.h"
#include "server/job/jobs.h"
#include "server/job/session_ends.h"
#include "server/launch/watched_process.h"

namespace fargpu::server {

struct SessionRecord {
  uint64_t id = 0;
  Jobs::Seat seat;  // of a management session: the job alone
  bool management = false;
  std::string client, peer;
  std::vector<size_t> units;  // the job's
  uint64_t memory_bytes = 0;  // per unit, the job's; 0: no limit
  std::shared_ptr<WatchedProcess> worker;
  bool ahead = false;  // the worker was started ahead
  std::chrono::steady_clock::time_point since;
  StatisticsPage statistics;
  OrdersPage orders;
  std::shared_ptr<WorkerLink> link;
  ConnectionJoiner joiner;  // of its further connections, if it may have some
  std::string client_host;
  bool client_seen = false;  // the worker sees the end of the client's process itself
  Fd connection;             // a duplicate, until the worker has answered the hello or is killed
  std::optional<std::chrono::steady_clock::time_point> for_nobody_since{};  // it is found ended
  unsigned unanswered = 0;  // questions in a row that its worker has not answered in time
  Cut cut{};                // the daemon ends its worker by a signal
  bool hangs = false;       // which does not end it
  bool evicted = false;     // a management session that has given way; its job is left
  uint64_t calls_seen = 0;  // of a management session, when it was last looked at
  std::chrono::steady_clock::time_point active{};  // when that was another number than before
  TenantId tenant{};
  uint32_t sequence = 0;  // of the hello
};

// A client that was admitted.
struct NewSession {
  const Job& job;  // with its memory page
  Jobs::Seat seat;
  const HelloRequest& hello;
  int socket = -1;  // stays the caller's
  std::string peer;
  bool encrypted = false;
  uint32_t sequence = 0;  // of the hello
  bool management = false;
};

class Sessions {
 public:
  // The environment with which sessions are started. Outlives them.
  struct Host {
    const DaemonConfig& config;
    const std::string& worker_program;
    const RuntimeFolder& folder;
    const Inventory& inventory;
    boost::asio::io_context& loop;
    Launcher& launcher;
    ImageBroker& images;
    WorkersAhead* ahead = nullptr;  // none: each session has a fresh worker
    // A worker on this GPU could not open its driver, or answered nothing (0), or was killed and is
    // still there (its process id).
    std::function<void(size_t unit, int hanging)> on_trouble{};
  };
  using OnEnd = std::function<void(const SessionRecord&)>;
  // `on_end`: the worker's process is gone.
  Sessions(const Host& host, IdSequence& ids, OnEnd on_end);
  // Workers may be left that cannot be killed.
  ~Sessions();
  Sessions(const Sessions&) = delete;
  Sessions& operator=(const Sessions&) = delete;

  // Starts the worker, which answers the hello. kSystem: there is none.
  Status start(const NewSession& session);
  // A further connection, whose Join was read: given to the worker. kRefused: there is no such
  // session, or the key is another one; nothing was taken then. kLost: `connection` is not needed.
  Status check(const JoinRequest& join);
  Status pass(const JoinRequest& join, int connection);

  // Commands to a session's worker; it answers with a report. stop() closes the session's gate:
  // calls of the client that submit wait in the worker. The answer comes when the work submitted
  // before has ended (WorkerReport::idle), or after `limit`. resume() opens the gate. `on_answer`
  // as in WorkerLink::ask(); kNotFound: there is no such session.
  using OnAnswer = WorkerLink::OnAnswer;
  void stop(uint64_t session, std::chrono::milliseconds limit, OnAnswer on_answer);
  void resume(uint64_t session, OnAnswer on_answer);
  void report(uint64_t session, OnAnswer on_answer);

  // `done` is called, from the loop, when no worker is left whose client had ended by now, or after
  // EndedClients::kLimit; for a session that asks, when their memory is back, or after twice that.
  // `units`: those that have one of these; empty: all.
  void await_ended(std::span<const size_t> units, uint64_t except, EndedClients::Done done);

  void kill_all(const std::string& why);
  // Management sessions of a job that has ended, or all: they hold nothing, and end at once.
  void end_management(std::optional<uint64_t> job = std::nullopt) const;
  bool only_management() const;
  // One management session gives way to a newcomer: of the tenant, and there of the address, with
  // most of them the one that has made no call for longest. False: too many that gave way are still
  // there.
  bool evict_management();
  // Ends every session in order: a stop within `limit`; if all work has ended by then, an open gate
  // for a second, in which the program may fetch results and end by itself; then SIGTERM.
  void finish_all(std::chrono::milliseconds limit);

  // By their id.
  const std::map<uint64_t, SessionRecord>& all() const { return sessions_; }
  // What became of a session of that tenant, and why, for its client. kUnknown also if too many
  // have ended since.
  std::pair<SessionState, std::string> end_of(uint64_t session, const TenantId& tenant) const;

 private:
  // Sets worker, ahead, link and joiner.
  Status start_worker(SessionRecord& record, const NewSession& session);
  SessionRecord* find(uint64_t session);
  // The worker of `session` requests a socket to the worker of `other`: makes it if both are of one
  // job. The asking worker's end; invalid: there is none.
  Fd connect_peers(uint64_t session, uint64_t other);
  static bool holds_memory(const SessionRecord& session);
  // The worker has answered the hello: its driver is open.
  static bool has_begun(const SessionRecord& session);
  // Looks that are repeated while there is something to see.
  struct Looks {
    boost::asio::steady_timer timer;
    std::chrono::milliseconds pause;
    void (Sessions::*look)();
    bool due = false;
  };
  void look_later(Looks& looks);
  // Sessions that do not begin are killed (DaemonConfig::worker_start), once: a process that sits
  // in the kernel stays a while.
  void look_at_starts();
  void kill_starting(SessionRecord& session, Cut cut);
  // Workers that answer nothing are killed (DaemonConfig::silent_worker).
  void look_at_answers();
  void take_answer(uint64_t session, const Result<WorkerReport>& report);
  static void look_at_calls(SessionRecord& session);
  // Kills a worker that has not done what it should.
  void kill(SessionRecord& session);
  void tell_trouble(const SessionRecord& session, int hanging = 0) const;
  // Asks the worker whether its client is there, for that wait. `again`: it is asked once more if
  // it may see the end of its client late.
  void ask_for_client(EndedClients::WaitId wait, uint64_t session, bool again);
  // Writes the number of other sessions on its GPUs to each session.
  void count_neighbours() const;
  // A worker that is opening its driver keeps memory of sessions that have ended meanwhile.
  bool memory_comes_late(std::span<const size_t> units) const;
  // Of finish_all().
  void let_end(uint64_t session);
  void cut(uint64_t session, const std::string& why);
  void ask(SessionRecord* session, WorkerMessage command, std::chrono::milliseconds limit,
           OnAnswer on_answer);
  void end(uint64_t session, const ProcessEnd& how);

  const Host host_;
  IdSequence& ids_;
  const OnEnd on_end_;
  const std::string host_id_;
  const uint64_t processes_;  // SlotOwner::host of processes in this pid namespace
  std::map<uint64_t, SessionRecord> sessions_;
  EndedClients ended_;
  SessionEnds ends_;
  std::map<size_t, std::chrono::steady_clock::time_point> last_ends_;  // of a session, by unit
  static constexpr auto kBetweenLooks = std::chrono::seconds(1);
  // In the time after which a worker that answers nothing is killed. By their number and not by the
  // clock: this process may have been stopped, too.
  static constexpr unsigned kQuestions = 8;
  Looks starts_, answers_;
};

}  // namespace fargpu::server

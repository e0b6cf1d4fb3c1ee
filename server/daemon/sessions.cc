#include "server/daemon/sessions.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <signal.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <utility>

#include "common/base/log.h"
#include "common/host/host_identity.h"
#include "server/daemon/door.h"
#include "server/handover/worker_options.h"

namespace fargpu::server {
namespace {

// Of commands that a worker answers at once.
constexpr auto kAnswerLimit = std::chrono::seconds(5);
// Of a worker that is asked for its client: a thread answers that has little else to do.
constexpr auto kClientLimit = std::chrono::seconds(1);
// Management sessions that have given way and are still there: they are killed, and soon gone.
constexpr size_t kMostEvicted = 64;
// Of a session whose work has ended when the daemon ends.
constexpr auto kLastCalls = std::chrono::seconds(1);
// The end of a connection over a network may arrive after a call of a process that has waited for
// the client's end.
constexpr auto kLateEnd = std::chrono::milliseconds(5);

bool share_a_unit(std::span<const size_t> a, std::span<const size_t> b) {
  return std::any_of(a.begin(), a.end(),
                     [b](size_t unit) { return std::find(b.begin(), b.end(), unit) != b.end(); });
}

}  // namespace

Sessions::Sessions(const Host& host, IdSequence& ids, OnEnd on_end)
    : host_(host),
      ids_(ids),
      on_end_(std::move(on_end)),
      host_id_(bootstrap::host_identity()),
      processes_(processes_of(host_id_, bootstrap::pid_namespace())),
      ended_(host.loop),
      starts_{boost::asio::steady_timer(host.loop), kBetweenLooks, &Sessions::look_at_starts},
      answers_{boost::asio::steady_timer(host.loop), host.config.silent_worker / kQuestions,
               &Sessions::look_at_answers} {}

Sessions::~Sessions() {
  for (const auto& [id, session] : sessions_) session.link->close();
}

Status Sessions::start(const NewSession& session) {
  FARGPU_ASSIGN_OR_RETURN(StatisticsPage page, StatisticsPage::create("fargpu-statistics"));
  FARGPU_ASSIGN_OR_RETURN(OrdersPage orders,
                          OrdersPage::create("fargpu-orders", SharedPage::Access::kRead));
  SessionRecord record{ids_.next(),
                       session.seat,
                       session.management,
                       session.hello.client_name,
                       session.peer,
                       session.job.grant.units,
                       session.job.grant.memory_bytes,
                       nullptr,
                       false,
                       std::chrono::steady_clock::now(),
                       std::move(page),
                       std::move(orders),
                       nullptr,
                       ConnectionJoiner(),
                       session.hello.host_id,
                       processes_ != 0 && session.hello.process.host == processes_,
                       Fd(::fcntl(session.socket, F_DUPFD_CLOEXEC, 0))};
  record.sequence = session.sequence;
  record.active = record.since;
  record.tenant = session.job.tenant;
  if (Status started = start_worker(record, session); !started.ok()) {
    log::error("event=worker-failed session={} job={} why=\"{}\"", id_text(record.id),
               id_text(session.job.id), started.message());
    return started;
  }
  const uint64_t id = record.id;
  const auto worker = record.worker;
  worker->set_name(fmt::format("worker {} job {}", id_text(id), id_text(session.job.id)));
  record.statistics.close_descriptor();
  record.orders.close_descriptor();
  log::info(
      "event=session-begin session={} job={} kind={} peer={} client=\"{}\" worker={} gpus={} "
      "memory={} ahead={}",
      id_text(record.id), id_text(session.job.id), record.management ? "management" : "cuda",
      record.peer, record.client, worker->id(),
      fmt::join(uuids_of(host_.inventory.units, record.units), ","), record.memory_bytes,
      record.ahead ? "yes" : "no");
  worker->on_end([this, id](const ProcessEnd& how) { end(id, how); });
  record.link->start(
      [this, id, worker](const Status& why) {
        log::error("event=worker-broke-protocol session={} worker={} why=\"{}\"", id_text(id),
                   worker->id(), why.message());
        if (SessionRecord* const session = find(id)) kill(*session);
      },
      [this, id](uint64_t other) { return connect_peers(id, other); },
      [this, id] {
        if (host_.ahead != nullptr) host_.ahead->session_settled(id);
      },
      [this, id](EndedClients::Done done) {
        const SessionRecord* const session = find(id);
        if (session != nullptr) await_ended(session->units, id, std::move(done));
      });
  const bool management = record.management;
  if (!management) record.link->serve_images(host_.images, id, session.job.tenant);
  sessions_.emplace(id, std::move(record));
  count_neighbours();
  if (host_.ahead != nullptr && !management) host_.ahead->session_starts(id);
  look_later(starts_);
  if (host_.config.silent_worker.count() != 0) look_later(answers_);
  return Status();
}

Status Sessions::start_worker(SessionRecord& record, const NewSession& session) {
  const DaemonConfig& config = host_.config;
  const HelloRequest& hello = session.hello;

  WorkerOptions options;
  options.session = record.id;
  options.daemon = daemon_id();
  options.job = record.seat.job;
  options.job_slot = record.seat.slot;
  options.job_slots = config.placement.max_sessions;
  options.driver = host_.inventory.driver_path;
  options.memory_bytes = record.memory_bytes;
  options.host_memory_bytes = config.host_memory_per_session;
  options.max_ptx_bytes = config.max_ptx_bytes;
  options.image_folder = host_.folder.images();
  options.image_cache_bytes = config.image_cache_bytes;
  options.limits = config.frame;
  options.client_limits = {hello.max_body_bytes, hello.max_bulk_bytes};
  options.hello_sequence = session.sequence;
  options.client = hello.client_name;
  options.client_control = hello.knows.control();
  options.transports = hello.transports;
  options.allowed = config.transports;
  options.host_limits = config.worker;
  options.lost_client = config.lost_client;
  options.same_host = !hello.host_id.empty() && hello.host_id == host_id_;

  options.management = session.management;
  options.units = uuids_of(host_.inventory.units, record.units);
  options.client_host = hello.process.host;
  if (record.client_seen) options.client_pid = hello.process.pid;

  Fd join_end;
  if (session.encrypted) options.encrypted_peer = record.peer;
  // Only a session that comes over plain TCP can stay on it.
  options.connections = session.management || session.encrypted || record.peer == "unix"
                            ? 1
                            : std::min(hello.connections, config.tcp_connections);
  if (options.connections > 1) {
    FARGPU_ASSIGN_OR_RETURN(auto joining, ConnectionJoiner::create(options.connections));
    record.joiner = std::move(joining.first);
    join_end = std::move(joining.second);
  }

  for (const size_t unit : record.units)
    options.priorities.push_back(host_.inventory.units[unit].priorities);

  // In the order of kSessionFds.
  std::vector<int> descriptors = {session.socket, record.statistics.descriptor(),
                                  session.job.memory->descriptor(), record.orders.descriptor()};
  if (join_end.valid()) descriptors.push_back(join_end.get());

  const Grant::Environment& granted = session.job.grant.environment;
  // Those ahead have a driver, which a management session must not open.
  if (host_.ahead != nullptr && !session.management) {
    if (auto worker = host_.ahead->give(granted, options, descriptors)) {
      record.ahead = true;
      record.worker = std::move(worker->process);
      record.link = std::move(worker->link);
      return Status();
    }
  }
  FARGPU_ASSIGN_OR_RETURN(auto control, make_control_sockets());
  record.link = std::make_shared<WorkerLink>(host_.loop, std::move(control.first));
  FARGPU_RETURN_IF_ERROR(record.link->send_start(options));
  ProcessSetup setup;
  setup.program = host_.worker_program;
  setup.environment = driver_environment(config);
  setup.environment.insert(setup.environment.end(), granted.begin(), granted.end());
  setup.descriptors = {{control.second.get(), kControlFd}};
  for (size_t i = 0; i < descriptors.size(); ++i)
    setup.descriptors.emplace_back(descriptors[i], kSessionFds[i]);
  FARGPU_ASSIGN_OR_RETURN(record.worker, WatchedProcess::start(host_.loop, host_.launcher, setup));
  return Status();
}

SessionRecord* Sessions::find(uint64_t session) {
  const auto found = sessions_.find(session);
  return found == sessions_.end() ? nullptr : &found->second;
}

Fd Sessions::connect_peers(uint64_t id, uint64_t other_id) {
  const SessionRecord* const session = find(id);
  const SessionRecord* const other = find(other_id);
  const bool one_job = session != nullptr && other != nullptr && session != other &&
                       session->seat.job == other->seat.job && !session->management &&
                       !other->management;
  auto sockets = one_job ? make_control_sockets()
                         : Status(StatusCode::kNotFound, "no other session of the job");
  if (sockets.ok() && other->link->send_peer(id, sockets->second)) return std::move(sockets->first);
  // A session that has ended is asked for now and then: that is not worth a line.
  if (one_job) {
    log::warn("event=peer-refused session={} other={} why=\"{}\"", id_text(id), id_text(other_id),
              sockets.ok() ? "its worker takes no messages" : sockets.status().message());
  }
  return Fd();
}

// The key of a living session proves that its session was admitted. A refusal tells nothing about
// sessions that exist.
Status Sessions::check(const JoinRequest& join) {
  const SessionRecord* const session = find(join.session);
  if (session == nullptr) return no_such_join();
  return session->joiner.check(join.key, join.index);
}

Status Sessions::pass(const JoinRequest& join, int connection) {
  SessionRecord* const session = find(join.session);
  if (session == nullptr) return no_such_join();
  return session->joiner.pass(connection, join.index);
}

void Sessions::ask(SessionRecord* session, WorkerMessage command, std::chrono::milliseconds limit,
                   OnAnswer on_answer) {
  if (session != nullptr) return session->link->ask(command, limit, std::move(on_answer));
  boost::asio::post(host_.loop, [on_answer = std::move(on_answer)] {
    on_answer(Status(StatusCode::kNotFound, "there is no such session"));
  });
}

void Sessions::stop(uint64_t id, std::chrono::milliseconds limit, OnAnswer on_answer) {
  SessionRecord* const session = find(id);
  if (session != nullptr) session->orders->set(Gate::kClosed);
  ask(session, WorkerMessage::kDrain, limit, std::move(on_answer));
}

void Sessions::resume(uint64_t id, OnAnswer on_answer) {
  SessionRecord* const session = find(id);
  if (session != nullptr) session->orders->set(Gate::kOpen);
  ask(session, WorkerMessage::kResume, kAnswerLimit, std::move(on_answer));
}

void Sessions::report(uint64_t id, OnAnswer on_answer) {
  ask(find(id), WorkerMessage::kReport, kAnswerLimit, std::move(on_answer));
}

void Sessions::end(uint64_t id, const ProcessEnd& how) {
  const auto ended = sessions_.extract(id);
  if (ended.empty()) return;
  const SessionRecord& session = ended.mapped();
  if (!session.management)
    for (const size_t unit : session.units) last_ends_[unit] = std::chrono::steady_clock::now();
  session.link->close();
  const LastWords& words = session.link->last_words();
  // A management session is ended by a signal (end_management), which may arrive before its worker
  // has a handler for it.
  const bool by_us = how.signal == SIGTERM ? session.management || !session.cut.why.empty()
                                           : how.signal == SIGKILL && !session.cut.why.empty();
  const bool expected = how.signal == 0 ? how.code == 0 : by_us;
  log::format(
      expected ? log::Level::kInfo : log::Level::kError,
      "event=session-end session={} job={} worker={} seconds={:.1f} calls={} "
      "how=\"{}\" why=\"{}\"",
      id_text(session.id), id_text(session.seat.job), session.worker->id(),
      std::chrono::duration<double>(std::chrono::steady_clock::now() - session.since).count(),
      session.statistics->calls.load(std::memory_order_relaxed), how.describe(),
      !words.reason.empty()               ? words.reason
      : by_us && !session.cut.why.empty() ? session.cut.why
                                          : "the worker gave no reason");
  if (how.code == kExitDriver && !has_begun(session)) tell_trouble(session);
  ends_.add(id, session.tenant, describe_end(how, session.cut, by_us, words));
  if (host_.ahead != nullptr) host_.ahead->session_settled(id);
  if (!session.evicted) on_end_(session);
  count_neighbours();
  if (memory_comes_late(session.units)) host_.ahead->when_open([this] { count_neighbours(); });
  ended_.gone(id);
}

std::pair<SessionState, std::string> Sessions::end_of(uint64_t session,
                                                      const TenantId& tenant) const {
  const auto living = sessions_.find(session);
  if (living != sessions_.end() && living->second.tenant == tenant)
    return {SessionState::kLives, {}};
  const auto why = ends_.find(session, tenant);
  return why ? std::pair(SessionState::kEnded, *why)
             : std::pair(SessionState::kUnknown, std::string());
}

// One that is starting has no context yet.
bool Sessions::holds_memory(const SessionRecord& session) {
  return !session.management && has_begun(session);
}

bool Sessions::has_begun(const SessionRecord& session) {
  return session.statistics->transport_bytes.load(std::memory_order_acquire) != 0;
}

bool Sessions::memory_comes_late(std::span<const size_t> units) const {
  return host_.ahead != nullptr && std::ranges::any_of(units, [this](size_t unit) {
           const auto last = last_ends_.find(unit);
           return last != last_ends_.end() && host_.ahead->is_opening_since(last->second);
         });
}

void Sessions::count_neighbours() const {
  for (const auto& one : sessions_) {
    const uint32_t late = memory_comes_late(one.second.units) ? 1 : 0;
    const auto others = std::count_if(sessions_.begin(), sessions_.end(), [&](const auto& other) {
      return other.first != one.first && !other.second.management &&
             share_a_unit(other.second.units, one.second.units);
    });
    one.second.orders->neighbours.store(static_cast<uint32_t>(others) + late,
                                        std::memory_order_relaxed);
  }
}

void Sessions::await_ended(std::span<const size_t> units, uint64_t except,
                           EndedClients::Done done) {
  const SessionRecord* const asking = find(except);
  std::set<uint64_t> open;
  std::vector<std::pair<uint64_t, bool>> asked;
  for (const auto& [id, session] : sessions_) {
    if (session.id == except || !holds_memory(session)) continue;
    if (!units.empty() && !share_a_unit(units, session.units)) continue;
    if (!session.link->ending()) {
      if (session.link->version() < kEndedProtocol) continue;
      // The session that asks may know of an end that its worker does not see yet.
      const bool may_know = asking == nullptr || asking->client_host == session.client_host;
      asked.emplace_back(session.id, may_know);
    }
    open.insert(session.id);
  }
  if (asking != nullptr) {
    done = [this, of = asking->units, done = std::move(done)] {
      if (!memory_comes_late(of)) return done();
      const uint64_t opening = ids_.next();
      ended_.wait({opening}, done);
      host_.ahead->when_open([this, opening] { ended_.gone(opening); });
    };
  }
  const auto wait = ended_.wait(std::move(open), std::move(done));
  for (const auto& [session, again] : asked) ask_for_client(wait, session, again);
}

void Sessions::ask_for_client(EndedClients::WaitId wait, uint64_t id, bool again) {
  const SessionRecord* const session = find(id);
  if (session == nullptr) return;
  session->link->ask(
      WorkerMessage::kClient, kClientLimit,
      [this, wait, id, again](const Result<WorkerReport>& report) {
        const SessionRecord* const asked = find(id);
        // What is ending, or has ended, is waited for whatever it answered.
        if (asked == nullptr || asked->link->ending()) return;
        if (report.ok() ? report->client_gone : report.status().code() == StatusCode::kLost) return;
        if (!again || (report.ok() && report->client_seen)) return ended_.there(wait, id);
        const auto timer = std::make_shared<boost::asio::steady_timer>(host_.loop, kLateEnd);
        timer->async_wait([this, timer, wait, id](const boost::system::error_code& error) {
          if (!error) ask_for_client(wait, id, false);
        });
      });
}

void Sessions::kill_all(const std::string& why) {
  for (auto& [id, session] : sessions_) {
    session.cut = {why};
    session.worker->signal(SIGKILL);
  }
}

void Sessions::end_management(std::optional<uint64_t> job) const {
  for (const auto& [id, session] : sessions_) {
    if (session.management && (!job || session.seat.job == *job)) session.worker->signal(SIGTERM);
  }
}

bool Sessions::evict_management() {
  using Holder = std::pair<TenantId, std::string>;
  std::map<TenantId, size_t> of_tenant;
  std::map<Holder, std::vector<SessionRecord*>> of_address;
  size_t evicted = 0;
  for (auto& [id, session] : sessions_) {
    if (session.evicted) ++evicted;
    if (!session.management || session.evicted) continue;
    look_at_calls(session);
    ++of_tenant[session.tenant];
    of_address[{session.tenant, address_of(session.peer)}].push_back(&session);
  }
  if (of_address.empty() || evicted >= kMostEvicted) return false;
  const auto rank = [&of_tenant](const auto& holder) {
    return std::pair(of_tenant[holder.first.first], holder.second.size());
  };
  const auto most = std::max_element(of_address.begin(), of_address.end(),
                                     [&](auto& a, auto& b) { return rank(a) < rank(b); });
  SessionRecord& session =
      **std::min_element(most->second.begin(), most->second.end(),
                         [](const auto* a, const auto* b) { return a->active < b->active; });
  session.cut = {"it gave way to another management session", "max-sessions"};
  session.evicted = true;
  log::info("event=session-cut session={} calls={} limit=max-sessions why=\"{}\"",
            id_text(session.id), session.statistics->calls.load(std::memory_order_relaxed),
            session.cut.why);
  session.worker->signal(SIGKILL);
  on_end_(session);
  return true;
}

bool Sessions::only_management() const {
  return std::all_of(sessions_.begin(), sessions_.end(),
                     [](const auto& each) { return each.second.management; });
}

void Sessions::finish_all(std::chrono::milliseconds limit) {
  end_management();
  for (const auto& [id, session] : sessions_) {
    if (session.management) continue;
    stop(session.id, limit, [this, id = session.id](const Result<WorkerReport>& report) {
      if (!report.ok()) return cut(id, report.status().message());
      report->idle ? let_end(id) : cut(id, "what it has submitted does not end");
    });
  }
}

// What has ended may be the program's last work, of which it wants the results.
void Sessions::let_end(uint64_t id) {
  SessionRecord* const session = find(id);
  if (session == nullptr) return;
  session->orders->set(Gate::kOpen);
  const auto timer = std::make_shared<boost::asio::steady_timer>(host_.loop, kLastCalls);
  timer->async_wait([this, timer, id](const boost::system::error_code& error) {
    if (!error) cut(id, "the drain is over");
  });
}

void Sessions::cut(uint64_t id, const std::string& why) {
  SessionRecord* const session = find(id);
  if (session == nullptr) return;
  session->cut = {why};
  log::warn("event=session-cut session={} calls={} why=\"{}\"", id_text(id),
            session->statistics->calls.load(std::memory_order_relaxed), why);
  session->worker->signal(SIGTERM);
}

}  // namespace fargpu::server

// Workers that do not start, do not answer or do not end.
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <chrono>
#include <utility>

#include "common/base/log.h"
#include "common/wire/control.h"
#include "server/daemon/sessions.h"
#include "server/handover/hello.h"

namespace fargpu::server {
namespace {

using std::chrono::steady_clock;

// Of a worker that starts, if its client has gone, which it sees itself once its driver is open.
constexpr auto kLongestStartForNobody = std::chrono::seconds(5);
// A driver that takes longer to open is in doubt.
constexpr auto kUsualStart = std::chrono::seconds(30);
// A process that was killed ends sooner, unless the system does not let it go.
constexpr auto kLongestEnd = std::chrono::seconds(5);

bool has_ended(const Fd& connection) {
  pollfd entry{connection.get(), POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) == 1;
}

// "20 s"
std::string shown(std::chrono::milliseconds time) {
  return fmt::format("{} s", std::chrono::duration<double>(time).count());
}

}  // namespace

void Sessions::look_later(Looks& looks) {
  if (std::exchange(looks.due, true)) return;
  looks.timer.expires_after(looks.pause);
  looks.timer.async_wait([this, &looks](const boost::system::error_code& error) {
    if (error) return;
    looks.due = false;
    (this->*looks.look)();
  });
}

void Sessions::look_at_starts() {
  const auto now = steady_clock::now();
  const auto limit = host_.config.worker_start;
  bool starting = false;
  for (auto& [id, session] : sessions_) {
    if (!session.connection.valid()) continue;
    if (has_begun(session)) {
      session.connection.reset();
      continue;
    }
    starting = true;
    if (!has_ended(session.connection)) {
      session.for_nobody_since.reset();
    } else if (!session.for_nobody_since) {
      session.for_nobody_since = now;
    }
    if (session.for_nobody_since && now - *session.for_nobody_since >= kLongestStartForNobody) {
      kill_starting(session, {"its client has gone, and its driver is not open"});
    } else if (limit.count() != 0 && now - session.since >= limit) {
      kill_starting(session,
                    {fmt::format("its driver is not open after {}", shown(limit)), "worker-start"});
    }
  }
  if (starting) look_later(starts_);
}

void Sessions::kill_starting(SessionRecord& session, Cut cut) {
  session.cut = std::move(cut);
  log::error("event=session-cut session={} calls=0 limit={} why=\"{}\"", id_text(session.id),
             session.cut.limit, session.cut.why);
  // The client waits for the answer to its hello.
  const Status why(StatusCode::kDriver, describe_end({}, session.cut, true, {}));
  const auto refusal = encode_refusal(session.management ? wire::kManage : wire::kHello,
                                      session.sequence, why, false);
  (void)::send(session.connection.get(), refusal.data(), refusal.size(),
               MSG_DONTWAIT | MSG_NOSIGNAL);
  ::shutdown(session.connection.get(), SHUT_WR);  // the worker may have it as long as it likes
  session.connection.reset();
  // A client that goes early proves nothing against the driver.
  const bool limit_passed = !session.cut.limit.empty();
  if (limit_passed || steady_clock::now() - session.since >= kUsualStart) tell_trouble(session);
  kill(session);
}

void Sessions::look_at_answers() {
  for (auto& [id, session] : sessions_) {
    if (session.management) look_at_calls(session);
    if (!holds_memory(session) || session.link->version() < kEndedProtocol) continue;
    session.link->ask(
        WorkerMessage::kClient, answers_.pause,
        [this, id = id](const Result<WorkerReport>& report) { take_answer(id, report); });
  }
  if (!sessions_.empty()) look_later(answers_);
}

void Sessions::look_at_calls(SessionRecord& session) {
  const uint64_t calls = session.statistics->calls.load(std::memory_order_relaxed);
  if (std::exchange(session.calls_seen, calls) != calls) session.active = steady_clock::now();
}

void Sessions::take_answer(uint64_t id, const Result<WorkerReport>& report) {
  SessionRecord* const session = find(id);
  if (session == nullptr) return;
  session->unanswered = report.ok() ? 0 : session->unanswered + 1;
  // The first one may have come just before the worker was stopped.
  if (session->unanswered != kQuestions - 1) return;
  session->cut = {
      fmt::format("its worker answers nothing for {}", shown(host_.config.silent_worker)),
      "silent-worker"};
  log::error("event=session-cut session={} calls={} limit=silent-worker why=\"{}\"", id_text(id),
             session->statistics->calls.load(std::memory_order_relaxed), session->cut.why);
  tell_trouble(*session);
  kill(*session);
}

void Sessions::kill(SessionRecord& session) {
  session.worker->signal(SIGKILL);
  const auto timer = std::make_shared<boost::asio::steady_timer>(host_.loop, kLongestEnd);
  timer->async_wait([this, timer, id = session.id](const boost::system::error_code& error) {
    SessionRecord* const left = error ? nullptr : find(id);
    if (left == nullptr || std::exchange(left->hangs, true)) return;
    log::error("event=worker-hangs session={} worker={} why=\"it cannot be killed\"", id_text(id),
               left->worker->id());
    tell_trouble(*left, left->worker->id());
  });
}

void Sessions::tell_trouble(const SessionRecord& session, int hanging) const {
  if (!host_.on_trouble || session.management) return;
  for (const size_t unit : session.units) host_.on_trouble(unit, hanging);
}

}  // namespace fargpu::server

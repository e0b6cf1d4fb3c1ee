#include "server/daemon/workers_ahead.h"

#include <fmt/core.h>
#include <signal.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <utility>

#include "common/base/log.h"
#include "server/handover/worker_options.h"

namespace fargpu::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// That a session which makes no context holds new workers up.
constexpr auto kStartTime = seconds(1);
// After the first death, doubled with each further one.
constexpr auto kShortestPause = milliseconds(100), kLongestPause = milliseconds(60000);
// A worker that waited for so long did not die of its start.
constexpr auto kLongLife = seconds(60);

}  // namespace

FileIdentity::FileIdentity(const std::string& path) {
  if (::stat(path.c_str(), &about_) != 0) about_ = {};
}

bool FileIdentity::operator==(const FileIdentity& other) const {
  const struct stat &a = about_, &b = other.about_;
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_size == b.st_size &&
         a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

std::vector<Grant::Environment> likely_grants(const Placement& placement) {
  std::vector<Grant::Environment> grants;
  for (size_t unit = 0; unit < placement.units().size(); ++unit) {
    auto grant = placement.preview({1, 0, {std::to_string(unit)}});
    if (grant.ok()) grants.push_back(std::move(grant->environment));
  }
  return grants;
}

WorkersAhead::WorkersAhead(boost::asio::io_context& loop, Launcher& launcher, Rules rules,
                           std::vector<Grant::Environment> grants)
    : loop_(loop), launcher_(launcher), rules_(std::move(rules)), timer_(loop) {
  for (Grant::Environment& granted : grants) grants_.push_back({std::move(granted)});
}

WorkersAhead::~WorkersAhead() { stop(); }

void WorkersAhead::start() {
  running_ = true;
  look();
}

void WorkersAhead::stop() {
  running_ = false;
  timer_.cancel();
  while (!waiting_.empty()) dismiss(waiting_.begin());
}

std::optional<WorkersAhead::Worker> WorkersAhead::give(const Grant::Environment& granted,
                                                       const WorkerOptions& options,
                                                       std::span<const int> descriptors) {
  drop_outdated();
  // One that is opening its driver is nearer to the session's begin than one that is not there.
  for (const bool prepared : {true, false}) {
    for (auto next = waiting_.begin(); next != waiting_.end();) {
      const Iterator waiting = next++;
      if (waiting->prepared != prepared || grants_[waiting->grant].granted != granted) continue;
      // A program that does not know `prepare` would take the session with it.
      if (waiting->worker.link->version() < kAheadProtocol) continue;
      Likely& grant = grants_[waiting->grant];
      Worker worker = waiting->worker;
      if (!worker.link->send_start(options, descriptors).ok()) {
        dismiss(waiting);  // it has died, and the loop has not seen that yet
        continue;
      }
      waiting_.erase(waiting);
      if (prepared) grant.deaths = 0;
      return worker;
    }
  }
  return std::nullopt;
}

void WorkersAhead::session_starts(uint64_t session) {
  if (rules_.count > 0) starting_[session] = Clock::now() + kStartTime;
  look();
}

void WorkersAhead::session_settled(uint64_t session) {
  if (starting_.erase(session) > 0) look();
}

void WorkersAhead::look_at_files() {
  drop_outdated();
  look();
}

void WorkersAhead::drop_outdated() {
  if (waiting_.empty()) return;
  const FileIdentity program(rules_.program), driver(rules_.prepare.driver);
  for (auto next = waiting_.begin(); next != waiting_.end();) {
    const Iterator waiting = next++;
    if (waiting->program == program && waiting->driver == driver) continue;
    log::info("event=worker-ahead-replaced worker={} why=\"its program or driver was replaced\"",
              waiting->worker.process->id());
    dismiss(waiting);
  }
}

void WorkersAhead::ended(const WorkerLink* link, const ProcessEnd& how) {
  const Iterator waiting = find(link);
  if (waiting == waiting_.end()) return;
  const Waiting ended = std::move(*waiting);
  waiting_.erase(waiting);
  ended.worker.link->close();
  const std::string& reason = ended.worker.link->last_words().reason;
  died(ended.grant, ended.since);
  const auto pause = grants_[ended.grant].not_before - Clock::now();
  log::warn("event=worker-ahead-died worker={} how=\"{}\" why=\"{}\" next-in={}ms",
            ended.worker.process->id(), how.describe(),
            reason.empty() ? "the worker gave no reason" : reason,
            std::chrono::duration_cast<milliseconds>(pause).count());
  if (!ended.prepared && on_failure_) on_failure_(ended.grant);
  look();
}

void WorkersAhead::died(size_t grant, Clock::time_point since) {
  Likely& likely = grants_[grant];
  const auto now = Clock::now();
  if (now - since >= kLongLife) likely.deaths = 0;
  const auto pause = kShortestPause * (1 << std::min(likely.deaths, 10u));
  likely.not_before = now + std::min<Clock::duration>(pause, kLongestPause);
  ++likely.deaths;
}

bool WorkersAhead::is_opening_since(Clock::time_point time) {
  const Iterator waiting = opening();
  return waiting != waiting_.end() && waiting->since <= time;
}

void WorkersAhead::when_open(std::function<void()> done) {
  when_open_.push_back(std::move(done));
  tell_open();
}

void WorkersAhead::tell_open() {
  if (opening() != waiting_.end()) return;
  for (auto& done : std::exchange(when_open_, {})) boost::asio::post(loop_, std::move(done));
}

void WorkersAhead::look() {
  tell_open();
  if (!running_) return;
  const auto now = Clock::now();
  if (const Iterator slow = opening(); slow != waiting_.end()) {
    // It looks again when that one is ready.
    if (now < slow->since + rules_.limit) return look_at(slow->since + rules_.limit);
    fail(slow, fmt::format("its driver was not open after {} ms", rules_.limit.count()));
    tell_open();  // before the next one
  }
  const auto grant = wanted_grant(now);
  if (!grant) return;
  auto earliest = grants_[*grant].not_before;
  std::erase_if(starting_, [now](const auto& session) { return session.second <= now; });
  for (const auto& [session, until] : starting_) earliest = std::max(earliest, until);
  if (earliest > now) return look_at(earliest);
  start_for(*grant);
}

void WorkersAhead::look_at(Clock::time_point time) {
  timer_.expires_at(time);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) look();
  });
}

WorkersAhead::Iterator WorkersAhead::opening() {
  return std::find_if(waiting_.begin(), waiting_.end(),
                      [](const Waiting& waiting) { return !waiting.prepared; });
}

std::optional<size_t> WorkersAhead::wanted_grant(Clock::time_point now) const {
  std::vector<uint32_t> counts(grants_.size());
  for (const Waiting& waiting : waiting_) ++counts[waiting.grant];
  std::optional<size_t> best;
  std::pair<Clock::time_point, uint32_t> best_rank;
  for (size_t grant = 0; grant < grants_.size(); ++grant) {
    if (counts[grant] >= rules_.count || !grants_[grant].in_service) continue;
    const std::pair rank(std::max(grants_[grant].not_before, now), counts[grant]);
    if (best && rank >= best_rank) continue;
    best = grant;
    best_rank = rank;
  }
  return best;
}

void WorkersAhead::start_for(size_t grant) {
  const auto now = Clock::now();
  if (const Status started = start_one(grant); !started.ok()) {
    died(grant, now);
    log::warn("event=worker-ahead-failed why=\"{}\"", started.message());
    return look_at(now);
  }
  look_at(now + rules_.limit);
}

Status WorkersAhead::start_one(size_t grant) {
  FARGPU_ASSIGN_OR_RETURN(auto control, make_control_sockets());
  // Before the worker is: a file that is replaced meanwhile is then another one.
  Waiting waiting{{nullptr, std::make_shared<WorkerLink>(loop_, std::move(control.first))},
                  grant,
                  FileIdentity(rules_.program),
                  FileIdentity(rules_.prepare.driver),
                  Clock::now()};
  const std::shared_ptr<WorkerLink> link = waiting.worker.link;
  FARGPU_RETURN_IF_ERROR(link->send_prepare(
      rules_.prepare, [this, of = link.get()](const Status& status) { prepared(of, status); }));
  ProcessSetup setup;
  setup.program = rules_.program;
  setup.arguments = {kAheadArgument};
  setup.name = "worker ahead";
  setup.environment = rules_.usual;
  const Grant::Environment& granted = grants_[grant].granted;
  setup.environment.insert(setup.environment.end(), granted.begin(), granted.end());
  setup.descriptors = {{control.second.get(), kControlFd}};
  FARGPU_ASSIGN_OR_RETURN(waiting.worker.process, WatchedProcess::start(loop_, launcher_, setup));
  waiting.worker.process->on_end(
      [this, of = link.get()](const ProcessEnd& how) { ended(of, how); });
  link->start([this, of = link.get()](const Status& why) { broke(of, why); });
  waiting_.push_back(std::move(waiting));
  return Status();
}

void WorkersAhead::prepared(const WorkerLink* link, const Status& status) {
  const Iterator waiting = find(link);
  if (waiting == waiting_.end()) return;
  if (status.ok()) {
    const Grant::Environment& granted = grants_[waiting->grant].granted;
    waiting->prepared = true;
    log::info("event=worker-ahead worker={} grant=\"{}\" milliseconds={}",
              waiting->worker.process->id(), granted.empty() ? "" : granted.front().second,
              std::chrono::duration_cast<milliseconds>(Clock::now() - waiting->since).count());
  } else {
    fail(waiting, status.message());
  }
  look();
}

void WorkersAhead::broke(const WorkerLink* link, const Status& why) {
  const Iterator waiting = find(link);
  if (waiting == waiting_.end()) return;
  log::error("event=worker-broke-protocol worker={} why=\"{}\"", waiting->worker.process->id(),
             why.message());
  fail(waiting, "it broke the protocol");
  look();
}

void WorkersAhead::fail(Iterator waiting, const std::string& why) {
  died(waiting->grant, waiting->since);
  log::warn("event=worker-ahead-failed worker={} why=\"{}\"", waiting->worker.process->id(), why);
  if (!waiting->prepared && on_failure_) on_failure_(waiting->grant);
  dismiss(waiting);
}

void WorkersAhead::set_in_service(size_t grant, bool in_service) {
  if (grant >= grants_.size()) return;
  grants_[grant].in_service = in_service;
  grants_[grant].deaths = 0;
  grants_[grant].not_before = {};
  for (auto next = waiting_.begin(); !in_service && next != waiting_.end();) {
    const Iterator waiting = next++;
    if (waiting->grant == grant) dismiss(waiting);
  }
  look();
}

WorkersAhead::Iterator WorkersAhead::find(const WorkerLink* link) {
  return std::find_if(waiting_.begin(), waiting_.end(),
                      [link](const Waiting& waiting) { return waiting.worker.link.get() == link; });
}

// By a signal, too: it may be in the driver for long, or stopped. It has nothing to save.
void WorkersAhead::dismiss(Iterator waiting) {
  const Waiting dismissed = std::move(*waiting);
  waiting_.erase(waiting);
  dismissed.worker.link->close();
  const auto& process = dismissed.worker.process;
  process->on_end([this, key = process.get()](const ProcessEnd&) {
    ending_.erase(key);
    look();
  });
  process->signal(SIGKILL);
  ending_.emplace(process.get(), process);
}

}  // namespace fargpu::server

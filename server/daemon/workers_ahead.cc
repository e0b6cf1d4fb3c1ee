#include "server/daemon/workers_ahead.h"

#include <fmt/core.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <utility>

#include "common/base/log.h"
#include "server/handover/child_process.h"
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

WorkersAhead::WorkersAhead(boost::asio::io_context& loop, Rules rules,
                           std::vector<Grant::Environment> grants)
    : loop_(loop), rules_(std::move(rules)), grants_(std::move(grants)), timer_(loop) {}

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
      const Entry entry = next++;
      if (entry->prepared != prepared || grants_[entry->grant] != granted) continue;
      // A program that does not know `prepare` would take the session with it.
      if (entry->worker.link->version() < kAheadProtocol) continue;
      Worker worker = entry->worker;
      if (!worker.link->send_start(options, descriptors).ok()) {
        dismiss(entry);  // it has died and was not reaped yet
        continue;
      }
      waiting_.erase(entry);
      if (prepared) deaths_ = 0;
      return worker;
    }
  }
  return std::nullopt;
}

void WorkersAhead::session_starts(pid_t worker) {
  if (rules_.count > 0) starting_[worker] = Clock::now() + kStartTime;
  look();
}

void WorkersAhead::session_settled(pid_t worker) {
  if (starting_.erase(worker) > 0) look();
}

void WorkersAhead::look_at_files() {
  drop_outdated();
  look();
}

void WorkersAhead::drop_outdated() {
  if (waiting_.empty()) return;
  const FileIdentity program(rules_.program), driver(rules_.prepare.driver);
  for (auto next = waiting_.begin(); next != waiting_.end();) {
    const Entry entry = next++;
    if (entry->program == program && entry->driver == driver) continue;
    log::info("event=worker-ahead-replaced worker={} why=\"its program or driver was replaced\"",
              entry->worker.pid);
    dismiss(entry);
  }
}

void WorkersAhead::reap() {
  std::erase_if(ending_, [](pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) == pid; });
  for (auto next = waiting_.begin(); next != waiting_.end();) {
    const Entry entry = next++;
    int wait_status = 0;
    if (::waitpid(entry->worker.pid, &wait_status, WNOHANG) != entry->worker.pid) continue;
    const Waiting ended = std::move(*entry);
    waiting_.erase(entry);
    ended.worker.link->close();
    const std::string& reason = ended.worker.link->last_words();
    died(ended.since);
    log::warn("event=worker-ahead-died worker={} how=\"{}\" why=\"{}\" next-in={}ms",
              ended.worker.pid, describe_wait_status(wait_status),
              reason.empty() ? "the worker gave no reason" : reason,
              std::chrono::duration_cast<milliseconds>(not_before_ - Clock::now()).count());
  }
  look();
}

void WorkersAhead::died(Clock::time_point since) {
  const auto now = Clock::now();
  if (now - since >= kLongLife) deaths_ = 0;
  const auto pause = kShortestPause * (1 << std::min(deaths_, 10u));
  not_before_ = now + std::min<Clock::duration>(pause, kLongestPause);
  ++deaths_;
}

void WorkersAhead::look() {
  if (!running_) return;
  const auto grant = wanted_grant();
  if (!grant) return;
  const auto now = Clock::now();
  auto earliest = not_before_;
  std::erase_if(starting_, [now](const auto& session) { return session.second <= now; });
  for (const auto& [pid, until] : starting_) earliest = std::max(earliest, until);
  if (earliest > now) return look_at(earliest);
  if (const Status started = start_one(*grant); !started.ok()) {
    died(now);
    log::warn("event=worker-ahead-failed why=\"{}\"", started.message());
    look_at(not_before_);
  }
}

void WorkersAhead::look_at(Clock::time_point time) {
  timer_.expires_at(time);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) look();
  });
}

// The one with the fewest workers. None while a worker opens its driver: it looks again then.
std::optional<size_t> WorkersAhead::wanted_grant() const {
  std::vector<uint32_t> counts(grants_.size());
  for (const Waiting& entry : waiting_) {
    if (!entry.prepared) return std::nullopt;
    ++counts[entry.grant];
  }
  const auto fewest = std::min_element(counts.begin(), counts.end());
  if (fewest == counts.end() || *fewest >= rules_.count) return std::nullopt;
  return static_cast<size_t>(fewest - counts.begin());
}

Status WorkersAhead::start_one(size_t grant) {
  FARGPU_ASSIGN_OR_RETURN(auto control, make_control_sockets());
  // Before the worker is: a file that is replaced meanwhile is then another one.
  Waiting entry{{-1, std::make_shared<WorkerLink>(loop_, std::move(control.first))},
                grant,
                FileIdentity(rules_.program),
                FileIdentity(rules_.prepare.driver),
                Clock::now()};
  const std::shared_ptr<WorkerLink> link = entry.worker.link;
  const auto pid = std::make_shared<pid_t>(-1);
  FARGPU_RETURN_IF_ERROR(link->send_prepare(
      rules_.prepare, [this, pid](const Status& status) { prepared(*pid, status); }));
  ChildSetup setup;
  setup.program = rules_.program;
  setup.arguments = {kAheadArgument};
  setup.environment = rules_.usual;
  setup.environment.insert(setup.environment.end(), grants_[grant].begin(), grants_[grant].end());
  setup.descriptors = {{control.second.get(), kControlFd}};
  FARGPU_ASSIGN_OR_RETURN(*pid, start_child(setup));
  entry.worker.pid = *pid;
  link->start([pid = *pid](const Status& why) {
    log::error("event=worker-broke-protocol worker={} why=\"{}\"", pid, why.message());
    ::kill(pid, SIGKILL);
  });
  waiting_.push_back(std::move(entry));
  return Status();
}

void WorkersAhead::prepared(pid_t worker, const Status& status) {
  const Entry entry = find(worker);
  if (entry == waiting_.end()) return;
  if (status.ok()) {
    entry->prepared = true;
    log::info("event=worker-ahead worker={} grant=\"{}\" milliseconds={}", worker,
              grants_[entry->grant].empty() ? "" : grants_[entry->grant].front().second,
              std::chrono::duration_cast<milliseconds>(Clock::now() - entry->since).count());
  } else {
    died(entry->since);
    log::warn("event=worker-ahead-failed worker={} why=\"{}\"", worker, status.message());
    dismiss(entry);
  }
  look();
}

WorkersAhead::Entry WorkersAhead::find(pid_t worker) {
  return std::find_if(waiting_.begin(), waiting_.end(),
                      [worker](const Waiting& entry) { return entry.worker.pid == worker; });
}

// By a signal, too: it may be in the driver for long.
void WorkersAhead::dismiss(Entry entry) {
  const Waiting dismissed = std::move(*entry);
  waiting_.erase(entry);
  dismissed.worker.link->close();
  ::kill(dismissed.worker.pid, SIGTERM);
  ending_.insert(dismissed.worker.pid);
}

}  // namespace fargpu::server

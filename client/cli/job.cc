#include "client/cli/job.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

namespace fargpu::cli {
namespace {

// In the order of the servers.
Status export_tickets(const std::string& tickets) {
  if (::setenv(bootstrap::kJobVariable, tickets.c_str(), 1) != 0)
    return system_error(std::string("cannot set ") + bootstrap::kJobVariable, errno);
  return Status();
}

// The pid of the program: this process's own, or 0 for one that is not started yet.
Result<JobWish> wish_of(const std::string& program, int pid) {
  FARGPU_ASSIGN_OR_RETURN(JobWish wish, wish_from_environment());
  wish.program = std::filesystem::path(program).filename().string();
  wish.pid = pid;
  return wish;
}

// The holder's report of its attempt: the code, then the tickets or the message.
void tell(const Fd& pipe, StatusCode code, const std::string& text) {
  // Not more than a pipe accepts in one write: 16 tickets have 800 bytes.
  std::string bytes(reinterpret_cast<const char*>(&code), sizeof code);
  bytes += text.substr(0, 2048);
  [[maybe_unused]] const ssize_t written = ::write(pipe.get(), bytes.data(), bytes.size());
}

Result<std::string> hear(const Fd& pipe) {
  std::string bytes;
  char part[512];
  for (;;) {
    const ssize_t got = ::read(pipe.get(), part, sizeof part);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    bytes.append(part, static_cast<size_t>(got));
  }
  StatusCode code = StatusCode::kOk;
  if (bytes.size() < sizeof code)
    return Status(StatusCode::kSystem, "the process that holds the job died at its start");
  std::memcpy(&code, bytes.data(), sizeof code);
  if (code != StatusCode::kOk) return Status(code, bytes.substr(sizeof code));
  return bytes.substr(sizeof code);
}

// A duplicate of the descriptor that is none of the standard ones, which may be closed.
Fd above_standard(Fd file) {
  if (file.get() > STDERR_FILENO || !file.valid()) return file;
  return Fd(::fcntl(file.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
}

Fd watch_itself() {
  return above_standard(Fd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0))));
}

// For runs in quick succession: the job before may still have its last worker for a moment.
Result<OpenedJob> open_job_patiently(const Target& target, const JobWish& wish,
                                     transport::Deadline deadline) {
  constexpr auto kPatience = std::chrono::seconds(2);
  constexpr auto kPause = std::chrono::milliseconds(100);
  const auto last = std::min<transport::Deadline>(deadline, transport::Clock::now() + kPatience);
  auto job = open_job(target, wish, deadline);
  while (!job.ok() && job.status().code() == StatusCode::kNoCapacity &&
         transport::Clock::now() < last) {
    std::this_thread::sleep_for(kPause);
    auto again = open_job(target, wish, deadline);
    // If the server has gone meanwhile, it had given its reason before.
    if (!again.ok() && again.status().code() != StatusCode::kNoCapacity) break;
    job = std::move(again);
  }
  return job;
}

// One job per server, all or none.
struct OpenedJobs {
  std::vector<Fd> connections;
  std::string tickets;
};
Result<OpenedJobs> open_jobs(const std::vector<Target>& targets, const JobWish& wish,
                             transport::Deadline deadline) {
  OpenedJobs jobs;
  std::vector<bootstrap::JobTicket> tickets;
  bootstrap::DistinctServers distinct;
  for (const Target& target : targets) {
    FARGPU_ASSIGN_OR_RETURN(OpenedJob job, open_job_patiently(target, wish, deadline));
    FARGPU_RETURN_IF_ERROR(distinct.add(target.address.to_string(), job.daemon));
    jobs.connections.push_back(std::move(job.connection));
    tickets.push_back(job.ticket);
  }
  jobs.tickets = bootstrap::to_text(tickets);
  return jobs;
}

// Closes all descriptors of the program, because readers of its pipes wait for their end.
// `program` and `pipe` are none of the standard ones.
void leave_the_program(const Fd& program, const Fd& pipe) {
  ::prctl(PR_SET_NAME, "fargpu-job");
  const Fd nothing = above_standard(Fd(::open("/dev/null", O_RDWR | O_CLOEXEC)));
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    ::dup2(nothing.get(), standard);
  const auto low = static_cast<unsigned>(std::min(program.get(), pipe.get()));
  const auto high = static_cast<unsigned>(std::max(program.get(), pipe.get()));
  if (low > 3) ::close_range(3, low - 1, 0);
  if (high > low + 1) ::close_range(low + 1, high - 1, 0);
  ::close_range(high + 1, ~0u, 0);
}

// Waits until the program ends, or all connections have.
[[noreturn]] void hold(const std::vector<Target>& targets, const JobWish& wish,
                       transport::Deadline deadline, const Fd& program, Fd pipe) {
  leave_the_program(program, pipe);
  auto jobs = open_jobs(targets, wish, deadline);
  if (!jobs.ok()) {
    tell(pipe, jobs.status().code(), jobs.status().message());
    ::_exit(0);
  }
  tell(pipe, StatusCode::kOk, jobs->tickets);
  pipe.reset();
  // Leaves the program's folder; if that fails, the folder stays in use.
  [[maybe_unused]] const int moved = ::chdir("/");
  std::vector<pollfd> ends{{program.get(), POLLIN, 0}};
  for (const Fd& connection : jobs->connections) ends.push_back({connection.get(), POLLIN, 0});
  while (ends.size() > 1 && ends.front().revents == 0) {
    if (::poll(ends.data(), ends.size(), -1) < 0) {
      if (errno == EINTR) continue;
      break;
    }
    std::erase_if(ends,
                  [&](const pollfd& end) { return end.fd != program.get() && end.revents != 0; });
  }
  ::_exit(0);
}

}  // namespace

Status begin_job(const std::string& program, transport::Deadline deadline) {
  FARGPU_ASSIGN_OR_RETURN(const auto targets, targets_from_environment());
  FARGPU_ASSIGN_OR_RETURN(const JobWish wish, wish_of(program, ::getpid()));
  // Refers to this process, which becomes the program.
  const Fd self = watch_itself();
  if (!self.valid()) return system_error("pidfd_open", errno);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("pipe2", errno);
  const Fd reader(ends[0]);
  Fd writer = above_standard(Fd(ends[1]));
  if (!writer.valid()) return system_error("fcntl", errno);
  const pid_t child = ::fork();
  if (child < 0) return system_error("fork", errno);
  if (child == 0) {
    // The holder is the child of a child that has gone: the program must not find a child that it
    // did not start.
    ::setsid();
    const pid_t holder = ::fork();
    if (holder == 0) hold(targets, wish, deadline, self, std::move(writer));
    if (holder < 0) tell(writer, StatusCode::kSystem, system_error("fork", errno).message());
    ::_exit(0);
  }
  writer.reset();
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  FARGPU_ASSIGN_OR_RETURN(const std::string tickets, hear(reader));
  return export_tickets(tickets);
}

bool can_become_the_program() {
  int reaper = 0;
  return watch_itself().valid() && ::getpid() != 1 &&
         (::prctl(PR_GET_CHILD_SUBREAPER, &reaper) != 0 || reaper == 0);
}

Result<std::vector<Fd>> begin_job_here(const std::string& program, transport::Deadline deadline) {
  FARGPU_ASSIGN_OR_RETURN(const auto targets, targets_from_environment());
  FARGPU_ASSIGN_OR_RETURN(const JobWish wish, wish_of(program, 0));
  FARGPU_ASSIGN_OR_RETURN(OpenedJobs jobs, open_jobs(targets, wish, deadline));
  FARGPU_RETURN_IF_ERROR(export_tickets(jobs.tickets));
  return std::move(jobs.connections);
}

Status begin_job_later() {
  const auto targets = targets_from_environment();
  std::vector<bootstrap::JobTicket> tickets;
  // Without a server the program's first call says so.
  for (size_t i = 0; i < (targets.ok() ? targets->size() : 1); ++i) {
    FARGPU_ASSIGN_OR_RETURN(const bootstrap::JobTicket ticket, bootstrap::make_ticket());
    tickets.push_back(ticket);
  }
  return export_tickets(bootstrap::to_text(tickets));
}

}  // namespace fargpu::cli

#include "client/cli/job.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <vector>

#include "client/program/companion.h"

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

// Waits until the program ends, or all connections have.
void hold(const std::vector<Target>& targets, const JobWish& wish, transport::Deadline deadline,
          Companion& companion) {
  companion.leave_the_program("fargpu-job", Companion::Stderr::kClose);
  auto jobs = open_jobs(targets, wish, deadline);
  if (!jobs.ok()) return companion.answer(jobs.status());
  companion.answer(jobs->tickets);
  // Leaves the program's folder; if that fails, the folder stays in use.
  [[maybe_unused]] const int moved = ::chdir("/");
  const int program = companion.program().get();
  std::vector<pollfd> ends{{program, POLLIN, 0}};
  for (const Fd& connection : jobs->connections) ends.push_back({connection.get(), POLLIN, 0});
  while (ends.size() > 1 && ends.front().revents == 0) {
    if (::poll(ends.data(), ends.size(), -1) < 0) {
      if (errno == EINTR) continue;
      break;
    }
    std::erase_if(ends, [&](const pollfd& end) { return end.fd != program && end.revents != 0; });
  }
}

}  // namespace

Status begin_job(const std::string& program, transport::Deadline deadline) {
  FARGPU_ASSIGN_OR_RETURN(const auto targets, targets_from_environment());
  FARGPU_ASSIGN_OR_RETURN(const JobWish wish, wish_of(program, ::getpid()));
  FARGPU_ASSIGN_OR_RETURN(const std::string tickets, start_companion([&](Companion& companion) {
                            hold(targets, wish, deadline, companion);
                          }));
  return export_tickets(tickets);
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

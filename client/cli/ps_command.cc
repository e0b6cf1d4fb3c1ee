// fargpu ps: the jobs of a server, or of several, each with its sessions.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "client/cli/commands.h"
#include "client/cli/exit_codes.h"
#include "client/cli/server_query.h"
#include "common/base/id_text.h"

namespace fargpu::cli {

namespace {

constexpr auto kJobsLimit = std::chrono::seconds(10);

std::string age(double seconds) {
  char text[32];
  if (seconds < 120) {
    std::snprintf(text, sizeof(text), "%.1f s", seconds);
  } else if (seconds < 7200) {
    std::snprintf(text, sizeof(text), "%.0f min", seconds / 60);
  } else {
    std::snprintf(text, sizeof(text), "%.1f h", seconds / 3600);
  }
  return text;
}

std::string state(const JobStatus& job, size_t sessions) {
  if (job.ends_in_seconds >= 0) return "ends in " + age(job.ends_in_seconds);
  if (job.held) return sessions == 0 ? "held, idle" : "held";
  return "running";
}

void print(const JobStatus& job, size_t sessions, const std::vector<GpuStatus>& gpus) {
  const std::string limit =
      job.memory_limit_bytes == 0 ? "" : " of " + format_bytes(job.memory_limit_bytes);
  std::printf("job %s  %s  %s  %s  %s\n", id_text(job.id).c_str(), state(job, sessions).c_str(),
              age(job.seconds).c_str(), job.peer.c_str(), job.client.c_str());
  for (size_t i = 0; i < job.gpus.size(); ++i) {
    const uint64_t used = i < job.memory_used_bytes.size() ? job.memory_used_bytes[i] : 0;
    std::printf("  GPU %zu  %s  %s%s\n", i, job.gpus[i].c_str(), format_bytes(used).c_str(),
                limit.c_str());
    for (const GpuStatus& gpu : gpus)
      if (gpu.uuid == job.gpus[i] && !gpu.out_of_service.empty())
        std::printf("    out of service: %s\n", gpu.out_of_service.c_str());
  }
}

void print(const SessionStatus& session) {
  std::printf("  session %-14s  worker %-8d %-10s  %-12s  %-10llu calls  %-22s  %-9s  %s\n",
              id_text(session.id).c_str(), session.worker_pid, age(session.seconds).c_str(),
              format_bytes(session.memory_used_bytes).c_str(),
              static_cast<unsigned long long>(session.calls), session.peer.c_str(),
              session.transport.c_str(), session.client.c_str());
}

int list_jobs_of(const Target& target) {
  auto status = query_status(target, transport::Clock::now() + kJobsLimit);
  if (!status) return fail(status.status());
  const auto belongs = [](const JobStatus& job) {
    return [&job](const SessionStatus& session) { return session.job == job.id; };
  };
  std::vector<SessionStatus>& sessions = status->sessions;
  for (const JobStatus& job : status->jobs) {
    print(job, static_cast<size_t>(std::count_if(sessions.begin(), sessions.end(), belongs(job))),
          status->gpus);
    for (const SessionStatus& session : sessions) {
      if (session.job == job.id) print(session);
    }
  }
  // They look at a job that has nothing yet, or a long answer was cut and lacks their job.
  for (const SessionStatus& session : sessions) {
    const auto its_job = [&session](const JobStatus& job) { return job.id == session.job; };
    if (std::none_of(status->jobs.begin(), status->jobs.end(), its_job)) print(session);
  }
  std::printf("%zu jobs\n%zu sessions\n", status->jobs.size(), sessions.size());
  return kSuccess;
}

int list_jobs(const ServerOptions& options) {
  if (Status status = export_server(options); !status.ok()) return fail(status);
  auto targets = targets_from_environment();
  if (!targets) return fail(targets.status());
  return for_each_server(*targets, list_jobs_of);
}

}  // namespace

void add_ps(CLI::App& app, Command& command) {
  CLI::App* ps_app = app.add_subcommand("ps", "List the jobs of a server with their sessions");
  auto options = std::make_shared<ServerOptions>();
  add_server_options(*ps_app, *options);
  ps_app->callback([options, &command] { command = [options] { return list_jobs(*options); }; });
}

}  // namespace fargpu::cli

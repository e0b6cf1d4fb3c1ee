#include "server/daemon/sessions.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "common/base/log.h"
#include "common/bootstrap/host_identity.h"
#include "server/handover/child_process.h"
#include "server/handover/worker_options.h"

namespace fargpu::server {
namespace {

std::string read_reason(const Fd& pipe) {
  char text[512];
  const ssize_t got = ::read(pipe.get(), text, sizeof text);
  return got > 0 ? printable(std::string_view(text, static_cast<size_t>(got)), sizeof text)
                 : std::string();
}

}  // namespace

std::vector<std::pair<std::string, std::string>> driver_environment(const DaemonConfig& config) {
  std::vector<std::pair<std::string, std::string>> result;
  if (config.sim_gpus != 0) result.emplace_back("FARGPU_SIM_GPUS", std::to_string(config.sim_gpus));
  if (!config.sim_memory.empty()) result.emplace_back("FARGPU_SIM_MEMORY", config.sim_memory);
  if (!config.sim_compute_capability.empty()) {
    result.emplace_back("FARGPU_SIM_COMPUTE_CAPABILITY", config.sim_compute_capability);
  }
  if (!config.log_level.empty()) result.emplace_back("FARGPU_LOG", config.log_level);
  return result;
}

Sessions::Sessions(const Host& host, IdSequence& ids, OnEnd on_end)
    : host_(host), ids_(ids), on_end_(std::move(on_end)), host_id_(bootstrap::host_identity()) {}

Status Sessions::start(const NewSession& session) {
  FARGPU_ASSIGN_OR_RETURN(StatisticsPage page, StatisticsPage::create());
  SessionRecord record{ids_.next(),
                       session.seat,
                       session.hello.client_name,
                       session.peer,
                       session.job.gpus,
                       session.job.memory_bytes,
                       -1,
                       std::chrono::steady_clock::now(),
                       std::move(page),
                       Fd(),
                       ConnectionJoiner()};
  auto pid = start_worker(record, session);
  if (!pid.ok()) {
    log::error("event=worker-failed session={:016x} job={:016x} why=\"{}\"", record.id,
               session.job.id, pid.status().message());
    return pid.status();
  }
  record.pid = *pid;
  record.statistics.close_descriptor();
  std::string uuids;
  for (const size_t gpu : record.gpus)
    uuids += (uuids.empty() ? "" : ",") + host_.inventory.gpus[gpu].uuid;
  log::info(
      "event=session-begin session={:016x} job={:016x} peer={} client=\"{}\" worker={} gpus={} "
      "memory={}",
      record.id, session.job.id, record.peer, record.client, record.pid, uuids,
      record.memory_bytes);
  sessions_.emplace(*pid, std::move(record));
  return Status();
}

Result<pid_t> Sessions::start_worker(SessionRecord& record, const NewSession& session) {
  const DaemonConfig& config = host_.config;
  const HelloRequest& hello = session.hello;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return system_error("pipe", errno);
  record.reason.reset(ends[0]);
  const Fd reason_writer(ends[1]);

  WorkerOptions options;
  options.session = record.id;
  options.job = record.seat.job;
  options.job_slot = record.seat.slot;
  options.job_slots = config.pool.max_sessions;
  options.parent = ::getpid();
  options.driver = host_.inventory.driver_path;
  options.memory_bytes = record.memory_bytes;
  options.image_folder = host_.folder.images();
  options.image_cache_bytes = config.image_cache_bytes;
  options.limits = config.frame;
  options.client_limits = {hello.max_body_bytes, hello.max_bulk_bytes};
  options.hello_sequence = session.sequence;
  options.client = hello.client_name;
  options.transports = hello.transports;
  options.allowed = config.transports;
  options.host_limits = config.worker;
  options.same_host = !hello.host_id.empty() && hello.host_id == host_id_;

  Fd join_end;
  if (session.encrypted) options.encrypted_peer = record.peer;
  // Only a session that comes over plain TCP can stay on it.
  options.connections = session.encrypted || record.peer == "unix"
                            ? 1
                            : std::min(hello.connections, config.tcp_connections);
  if (options.connections > 1) {
    FARGPU_ASSIGN_OR_RETURN(auto joining, ConnectionJoiner::create(options.connections));
    record.joiner = std::move(joining.first);
    join_end = std::move(joining.second);
  }

  std::string visible;
  for (const size_t gpu : record.gpus) {
    visible += (visible.empty() ? "" : ",") + host_.inventory.gpus[gpu].uuid;
    options.priorities.push_back(host_.inventory.gpus[gpu].priorities);
  }

  ChildSetup setup;
  setup.program = host_.worker_program;
  setup.arguments = options.to_arguments();
  setup.environment = driver_environment(config);
  setup.environment.emplace_back("CUDA_VISIBLE_DEVICES", visible);
  setup.descriptors = {{session.socket, kSocketFd},
                       {reason_writer.get(), kReasonFd},
                       {record.statistics.descriptor(), kStatisticsFd},
                       {session.job.memory->descriptor(), kJobFd}};
  if (join_end.valid()) setup.descriptors.emplace_back(join_end.get(), kJoinFd);
  return start_child(setup);
}

const SessionRecord* Sessions::find(uint64_t session) const {
  const auto found = std::find_if(sessions_.begin(), sessions_.end(), [session](const auto& entry) {
    return entry.second.id == session;
  });
  return found == sessions_.end() ? nullptr : &found->second;
}

// Whoever shows the key of a living session has been admitted with it. A wrong one is told no more
// than that.
Status Sessions::check(const JoinRequest& join) const {
  const SessionRecord* const session = find(join.session);
  if (session == nullptr) return {StatusCode::kRefused, "no session to join"};
  return session->joiner.check(join.key, join.index);
}

Status Sessions::pass(const JoinRequest& join, int connection) {
  const auto session = std::find_if(sessions_.begin(), sessions_.end(), [&join](const auto& entry) {
    return entry.second.id == join.session;
  });
  if (session == sessions_.end()) return {StatusCode::kRefused, "no session to join"};
  return session->second.joiner.pass(connection, join.index);
}

void Sessions::reap() {
  // By pid, never "any child": other children (a probe) belong to others.
  for (auto session = sessions_.begin(); session != sessions_.end();) {
    int wait_status = 0;
    const auto current = session++;
    if (::waitpid(current->first, &wait_status, WNOHANG) == current->first)
      end(current, wait_status);
  }
}

void Sessions::end(std::map<pid_t, SessionRecord>::iterator entry, int wait_status) {
  const SessionRecord& session = entry->second;
  const std::string reason = read_reason(session.reason);
  const bool expected = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0;
  log::format(
      expected ? log::Level::kInfo : log::Level::kError,
      "event=session-end session={:016x} job={:016x} worker={} seconds={:.1f} calls={} "
      "how=\"{}\" why=\"{}\"",
      session.id, session.seat.job, session.pid,
      std::chrono::duration<double>(std::chrono::steady_clock::now() - session.since).count(),
      session.statistics->calls.load(std::memory_order_relaxed), describe_wait_status(wait_status),
      reason.empty() ? "the worker gave no reason" : reason);
  host_.folder.remove_uploads_of(session.pid);
  const auto ended = sessions_.extract(entry);
  on_end_(ended.mapped());
}

void Sessions::kill_all(int signal_number) const {
  for (const auto& [pid, session] : sessions_) ::kill(pid, signal_number);
}

}  // namespace fargpu::server

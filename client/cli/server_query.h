// Queries of the program `fargpu` to a server: a job, its status, and a short session for
// measuring. Plain values; Cap'n Proto stays in the .cc. Each call opens a connection and closes it
// again, except that of a job, which stays open. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "common/base/status.h"
#include "common/bootstrap/connect.h"
#include "common/bootstrap/job_ticket.h"
#include "common/bootstrap/open_session.h"
#include "common/transport/transport.h"

namespace fargpu::cli {

struct GpuStatus {
  std::string uuid, name;
  uint64_t total_bytes = 0, reserved_bytes = 0;
  unsigned sessions = 0, jobs = 0;
  std::string out_of_service;  // why; empty: it is in service
};

struct JobStatus {
  uint64_t id = 0;
  std::string client, peer;
  std::vector<std::string> gpus;
  uint64_t memory_limit_bytes = 0;          // per GPU; 0: none
  std::vector<uint64_t> memory_used_bytes;  // per GPU
  bool held = false;                        // by `fargpu run`
  double seconds = 0;
  double ends_in_seconds = -1;  // negative: it has sessions, or is held
};

struct SessionStatus {
  uint64_t id = 0, job = 0;
  std::string client, peer, transport;
  std::vector<std::string> gpus;
  uint64_t memory_limit_bytes = 0, memory_used_bytes = 0, calls = 0;
  double seconds = 0;
  int worker_pid = 0;
};

struct ServerStatus {
  std::string version, driver_name;
  // Whether client and server agree per function (common/bootstrap/agreement.h), and which ones of
  // the client's the server then lacks.
  bool agrees = false;
  std::vector<std::string> lacks;
  int driver_version = 0;  // 13000
  double uptime_seconds = 0;
  std::vector<GpuStatus> gpus;
  std::vector<JobStatus> jobs;
  std::vector<SessionStatus> sessions;
};

// A session that was opened, pinged and closed.
struct SessionProbe {
  std::string transport;  // "tcp 127.0.0.1:14900"
  std::string reason;     // why that one
  std::string route;      // the layer below it, if any
  // How bulk reaches device memory over rdma: "peer memory, from 1048576 bytes on (dma-buf: ...)";
  // empty over other transports.
  std::string device_memory;
  bool same_host = false;             // the transport is one of shared memory
  std::vector<std::string> failures;  // failed attempts
  std::string server_version, driver_name;
  int driver_version = 0;
  unsigned devices = 0;
  std::chrono::microseconds opening{0};  // connect, hello, worker start
  std::chrono::nanoseconds median_round_trip{0};
};

// Where to ask and how, from flags and environment (FARGPU_SERVER, FARGPU_TOKEN, FARGPU_TOKEN_FILE,
// FARGPU_TRANSPORT, FARGPU_TCP_CONNECTIONS, FARGPU_SPIN, FARGPU_CONNECT_TIMEOUT).
struct Target {
  bootstrap::ServerAddress address;
  std::string token, why_no_token;  // Tokens::of, why_none
  bootstrap::LinkWish link;
  std::chrono::microseconds connect_timeout{};                // to connect, and
  std::optional<std::chrono::microseconds> answer_timeout{};  // until the daemon answers
};
// All servers of the environment, at least one.
Result<std::vector<Target>> targets_from_environment();
// Runs `show` for each; with several servers under a line with the server's name. `show` returns an
// exit code; the first that is not kSuccess is returned, after all.
int for_each_server(const std::vector<Target>& targets,
                    const std::function<int(const Target&)>& show);

// A job that was opened. It is held while `connection` is open.
struct OpenedJob {
  Fd connection;
  bootstrap::JobTicket ticket;
  uint64_t daemon = 0;  // the server's id; 0: it did not say one
};
struct JobWish {
  uint32_t gpus = 0;
  uint64_t memory_bytes = 0;
  std::vector<std::string> devices;
  std::string program;                        // for ps and logs
  int pid = 0;                                // of the program
  std::optional<bootstrap::JobTicket> job{};  // of a session: that of this process, if it has one
};
// The wishes of the environment (FARGPU_GPUS, FARGPU_MEMORY, FARGPU_DEVICES).
Result<JobWish> wish_from_environment();
Result<OpenedJob> open_job(const Target& target, const JobWish& wish, transport::Deadline deadline);

Result<ServerStatus> query_status(const Target& target, transport::Deadline deadline);
Result<SessionProbe> probe_session(const Target& target, const JobWish& wish, unsigned pings,
                                   transport::Deadline deadline);

}  // namespace fargpu::cli

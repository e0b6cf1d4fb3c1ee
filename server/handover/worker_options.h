// Data that a worker receives from the daemon at its start: the message Start of
// schema/worker.capnp and inherited descriptors. No secrets.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "common/bootstrap/transport_choice.h"
#include "common/wire/frame.h"
#include "server/handover/worker_limits.h"
#include "server/placement/unit.h"

namespace fargpu::server {

// A worker's exit code: its driver could not be opened, or there was no session otherwise.
inline constexpr int kExitDriver = 4;

// Descriptors that a worker inherits, by number. A probe has kControlFd alone, and so has at first
// a worker that is started ahead.
inline constexpr int kSocketFd = 3;      // the client's connection, just after its hello
inline constexpr int kControlFd = 4;     // to the daemon: worker_messages.h
inline constexpr int kStatisticsFd = 5;  // memfd with SessionStatistics
// its further connections (joined_connections.h), when it may have some
inline constexpr int kJoinFd = 6;
inline constexpr int kJobFd = 7;     // memfd with the job's memory (job_memory.h)
inline constexpr int kOrdersFd = 8;  // memfd with SessionOrders
// Of a worker that is started ahead, until it has a session: for lists of processes.
inline constexpr const char* kAheadArgument = "--ahead";
// The descriptors of a session, attached to the Start of a worker that was started ahead; kJoinFd
// only where there is one.
inline constexpr std::array kSessionFds = {kSocketFd, kStatisticsFd, kJobFd, kOrdersFd, kJoinFd};

struct WorkerOptions {
  uint16_t daemon_version = 0;  // of the protocol of worker_messages.h; read, never sent
  uint64_t session = 0;
  uint64_t daemon = 0;  // its id, for the welcome; 0: it did not say one
  uint64_t job = 0;
  uint32_t job_slot = 0, job_slots = 0;  // of the session in the job's memory page; how many it has
  std::string driver;                    // resolved path
  uint64_t memory_bytes = 0;             // per GPU, for the whole job; 0: no limit
  uint64_t host_memory_bytes = 0;        // of the worker for the client's bytes; 0: the usual limit
  uint64_t max_ptx_bytes = 0;            // of an image; 0: no limit
  std::string image_folder;
  uint64_t image_cache_bytes = 0;
  wire::FrameLimits limits;         // limits of frames from the client
  wire::FrameLimits client_limits;  // limits of frames to the client
  uint32_t hello_sequence = 0;
  std::vector<PriorityRange> priorities;       // of streams, per GPU of the session
  std::string client;                          // for the log
  std::vector<bootstrap::Upgrade> transports;  // that the client wishes for, best first
  std::vector<bootstrap::Upgrade> allowed;     // by the configuration
  bool same_host = false;                      // as the client
  std::string encrypted_peer;   // not empty: the connection is the plain end of TLS with it
  uint16_t connections = 1;     // that the session may have
  uint64_t client_control = 0;  // opcodes of session control that the client knows, a bit each
  int32_t client_pid = 0;       // as the daemon numbers processes; 0: not known
  WorkerLimits host_limits;
  std::chrono::milliseconds lost_client{0};  // of a silent host; 0: the system's time
  // Of a management session: it serves NVML and opens no CUDA driver.
  bool management = false;
  std::vector<std::string> units;  // the job's by UUID, in its order
  uint64_t client_host = 0;        // SlotOwner::host of the client
};

// Data for a worker that is started ahead: the message Prepare.
struct PrepareOptions {
  std::string driver;  // resolved path
  WorkerLimits host_limits;
};

}  // namespace fargpu::server

// Configuration of fargpud: defaults, then the file, then the flags of the command line (main.cc).
//
// Plain values. An error names file, line and key, and the valid values; the file is then not
// applied at all.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/bootstrap/transport_choice.h"
#include "common/wire/frame.h"
#include "server/handover/worker_limits.h"
#include "server/job/image_broker.h"
#include "server/placement/host_placement.h"

namespace fargpu::server {

struct DaemonConfig {
  // "host:port", or the path of a unix socket (it begins with '/'); empty: default_listen()
  std::vector<std::string> listen;
  uint32_t socket_mode = 0600;         // permissions of unix sockets
  std::string driver = "auto";         // "auto", "sim" or a path
  uint32_t sim_gpus = 0;               // 0: FARGPU_SIM_GPUS or the simulator's default
  std::string sim_memory;              // "8G"; empty: the simulator's default
  std::string sim_compute_capability;  // "9.0", "8.0,9.0"; empty: the simulator's default
  // where the simulator's device memory lies (sim_slot.h); empty: a slot of its own
  std::optional<uint32_t> sim_slot;
  std::string sim_shared;  // file with the memory that its processes use (sim_slot.h); empty: none
  std::string token_file;  // empty: no token is asked for
  // PEM files, both or none. With them, TCP connections must be encrypted.
  std::string tls_cert, tls_key;
  std::string runtime_dir;  // empty: a new folder below RUNTIME_DIRECTORY, XDG_RUNTIME_DIR or /tmp
  std::string cache_dir;    // for images; empty: CACHE_DIRECTORY or /var/tmp
  std::string port_file;    // empty: none; the bound TCP ports, one per line
  std::vector<bootstrap::Upgrade> transports{
      bootstrap::Upgrade::kShm, bootstrap::Upgrade::kRdma};  // offered beyond TCP and unix sockets
  uint16_t tcp_connections = 8;  // that one session may have on TCP; 1: no further ones
  std::string log_level;         // empty: FARGPU_LOG or info
  PlacementLimits placement;
  uint32_t max_sessions_per_tenant = 0;  // and of its jobs without one (jobs.h); 0: no limit
  // after the last session of a job that no `fargpu run` holds
  std::chrono::milliseconds job_grace{30000};
  // Bytes on each GPU: the cap of a job (0: the GPU's memory), and the default for a job that asks
  // for no amount (0: the cap).
  uint64_t max_memory_per_job = 0;
  uint64_t memory_per_job = 0;
  uint64_t memory_per_session = 0;  // an older name of max_memory_per_job
  // of the host, for the client's bytes (host_budget.h); 0: half of what there is
  uint64_t host_memory_per_session = 0;
  uint64_t max_ptx_bytes = 64u << 20;  // of an image that is compiled; 0: no limit
  wire::FrameLimits frame{1u << 20, 4u << 20};
  uint64_t image_cache_bytes = uint64_t{4} << 30;  // of a tenant
  uint32_t image_tenants = 4;                      // that may keep images
  WorkerLimits worker;
  uint32_t workers_ahead = 2;  // that wait for a session, for each GPU
  // until a worker's driver is open; 0: no limit
  std::chrono::milliseconds worker_start{120000};
  // of a worker that answers nothing; 0: it stays
  std::chrono::milliseconds silent_worker{20000};
  // of a client whose host answers nothing; 0: the system's time
  std::chrono::milliseconds lost_client{20000};
  uint32_t max_handshakes = 1024;  // connections that have not been admitted yet
  std::chrono::milliseconds hello_deadline{5000};
  std::chrono::seconds drain{30};
};

// All interfaces if there is a token, else loopback only.
std::vector<std::string> default_listen(const DaemonConfig& config);

// Environment variables of workers and of the probe that follow from it.
std::vector<std::pair<std::string, std::string>> driver_environment(const DaemonConfig& config);

// Logs where no images can be kept.
ImageBroker::Rules image_rules(const DaemonConfig& config);

// Whether this address to listen at, a valid one, can be reached from other machines.
bool is_for_other_machines(const std::string& where);

// "0660", the permissions of a file. kInvalidArgument: no octal number, or more than 0777.
Result<uint32_t> parse_mode(const std::string& text);

// Applies the TOML file at `path` over `config`. kInvalidArgument names file, line and key; unknown
// keys are errors.
Status load_config(const std::string& path, DaemonConfig& config);
// The same for text, which errors call `name`.
Status parse_config(const std::string& text, const std::string& name, DaemonConfig& config);

// Checks limits against each other. kInvalidArgument: they contradict each other.
Status check_config(const DaemonConfig& config);

}  // namespace fargpu::server

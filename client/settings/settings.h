// Settings of the client libraries and of the program fargpu, from the environment: FARGPU_* of the
// moment when a library was loaded (environment.h), CUDA_* of the attempt to connect. A malformed
// value is an error that names its variable.
//
//   FARGPU_SERVER            host, host:port, [v6]:port, or the path of a unix socket (has a '/' or
//                            begins with "unix:"); several servers are separated by commas, and
//                            each is asked for what FARGPU_GPUS, FARGPU_MEMORY and FARGPU_DEVICES
//                            say
//   FARGPU_TOKEN             the token itself, or lines that say whose it is (tokens.h)
//   FARGPU_TOKEN_FILE        a file whose first line is the token, or which has such lines
//   FARGPU_GPUS              how many GPUs; default: the server's
//   FARGPU_MEMORY            memory per GPU, like 8G; default: the server's
//   FARGPU_DEVICES           wanted GPUs on the server: UUIDs or indices, separated by commas
//   FARGPU_JOB               the jobs of this program, one per server, set by `fargpu run` (job.h
//                            reads it)
//   FARGPU_CONNECT_TIMEOUT   seconds (or 500ms ...); default 5 s
//   FARGPU_TRANSPORT         auto (default), shm, rdma or tcp; without auto the session fails if
//                            the transport is not possible
//   FARGPU_TCP_CONNECTIONS   auto (default) or 1 to 16: connections of a session that stays on TCP
//   FARGPU_SPIN              how long a waiting call polls before it sleeps, like 20us
//   FARGPU_LINK              "rtt=20us,bandwidth=100Gbps": the session behaves as over such a link
//   FARGPU_COMPRESS          auto (default), zstd or none: how images of modules are sent
//   FARGPU_SYNC              1: every call waits for its answer
//   FARGPU_ZERO_COPY         0: pinned memory is never shared with a worker on the same host
//   FARGPU_COPY_THREADS      how many threads copy large memory (thread_team.h)
//   FARGPU_MAPPED, FARGPU_MANAGED
//                            which host memory is fetched when (fetch_mode.h reads them)
//   FARGPU_WATCHDOG          a time, like 10s: calls that take longer are reported on stderr
//   FARGPU_TRACE_RECORDS     how much of a timeline a worker keeps until it is fetched: 1 to
//                            1048576 (default) records of 24 bytes
//   CUDA_VISIBLE_DEVICES     which of the GPUs of all servers the application sees, as NVIDIA
//                            documents it
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/settings/identities.h"
#include "client/settings/tokens.h"
#include "common/base/status.h"
#include "common/bootstrap/connections_wish.h"
#include "common/bootstrap/transport_choice.h"
#include "common/transport/link/link_settings.h"
#include "common/wire/image_piece.h"
#include "common/wire/timeline_record.h"

namespace fargpu::client {

struct Settings {
  std::string server;  // empty: not set; in a session's settings: its own server
  Tokens tokens;       // of the servers
  uint32_t gpus = 0;
  uint64_t memory_bytes = 0;
  std::vector<std::string> devices;
  std::chrono::microseconds connect_timeout{5'000'000};
  bootstrap::TransportWish transport;
  bootstrap::ConnectionsWish connections;
  std::chrono::microseconds spin{0};
  std::optional<transport::LinkSettings> link;
  wire::Compression compression = wire::Compression::kAuto;
  bool sync_all = false;
  std::chrono::microseconds watchdog{0};  // 0: off
  uint64_t trace_records = wire::kMostTimelineRecords;
  bool zero_copy = true;
  std::optional<std::string> visible_devices;  // set but empty: no device is visible
};

Result<Settings> read_settings();

// CUDA_VISIBLE_DEVICES as it is now; its value at cuInit counts.
std::optional<std::string> visible_devices_now();

// The ordinals that CUDA_VISIBLE_DEVICES selects, in its order. `uuids`: of the session's GPUs by
// ordinal, "GPU-<uuid>" or "MIG-<uuid>". Entries are indices or prefixes of these; the first one
// that is neither or is ambiguous ends the list, and one that repeats leaves no device at all, as
// natively.
std::vector<int> visible_ordinals(const std::optional<std::string>& variable,
                                  const std::vector<std::string>& uuids);

}  // namespace fargpu::client

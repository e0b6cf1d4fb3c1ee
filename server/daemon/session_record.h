// The sessions of a daemon: their workers, and what is known about them. Pure bookkeeping on the
// daemon's thread; processes are started and reaped by the daemon.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "server/handover/inventory.h"
#include "server/handover/joined_connections.h"
#include "server/handover/session_statistics.h"
#include "server/placement/pool.h"

namespace fargpu::server {

struct SessionRecord {
  uint64_t id = 0;
  std::string client, peer;
  std::vector<size_t> gpus;
  uint64_t memory_bytes = 0;  // per GPU; 0: no limit
  pid_t pid = -1;
  std::chrono::steady_clock::time_point since;
  StatisticsPage statistics;
  Fd reason;                // reading end: the worker's last words
  ConnectionJoiner joiner;  // of its further connections, if it may have some
};

// What a status query is answered with: a whole frame, cut to what fits the peer.
std::vector<std::byte> encode_status(uint32_t sequence, const Inventory& inventory,
                                     const Pool& pool,
                                     const std::map<pid_t, SessionRecord>& sessions,
                                     std::chrono::steady_clock::time_point started,
                                     uint32_t max_body_bytes);

}  // namespace fargpu::server

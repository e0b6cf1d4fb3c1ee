// Units of this host, requests, and grants. Plain values.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fargpu::server {

struct PriorityRange {
  int least = 0, greatest = 0;  // of streams
};

// A GPU or a MIG instance.
struct Unit {
  std::string uuid;  // "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" or "MIG-..."
  std::string name;
  uint64_t total_bytes = 0;
  PriorityRange priorities;
  uint64_t context_bytes = 0;  // that a context takes of it, by itself; 0: not known
};

struct PlacementRequest {
  uint32_t gpus = 1;                 // ignored when `devices` is not empty and this is 0
  uint64_t memory_bytes = 0;         // per unit; 0: no limit
  std::vector<std::string> devices;  // UUIDs (or unique beginnings of them) or indices; empty: any
};

// The units and memory of a job, for all its sessions.
struct Grant {
  using Time = std::chrono::steady_clock::time_point;
  using Environment = std::vector<std::pair<std::string, std::string>>;

  std::vector<size_t>
      units;  // of Placement::units(), in the order in which every session sees them
  uint64_t memory_bytes = 0;  // per unit, for the whole job; 0: no limit
  Environment environment;    // of its workers: shows them these units and no others
  std::optional<Time> ends;   // known while it is unused
};

}  // namespace fargpu::server

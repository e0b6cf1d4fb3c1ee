// The pool: which job gets which GPUs of this host. Pure logic: no clock, no system call, no lock;
// one thread.
//
// A job asks for a number of GPUs, or for certain ones, and for memory per GPU. place() chooses the
// least loaded ones that can take it and reserves; release() gives back. Load is the number of
// jobs, then reserved memory, then the lower index. Without oversubscription the memory reserved on
// a GPU never exceeds what the GPU has. A job without a memory limit reserves nothing: it shares
// what is there, as processes on one GPU do.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace fargpu::server {

struct PriorityRange {
  int least = 0, greatest = 0;  // of streams
};

struct Gpu {
  std::string uuid;  // "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" or "MIG-..."
  std::string name;
  uint64_t total_bytes = 0;
  PriorityRange priorities;
};

struct PoolLimits {
  uint32_t max_sessions = 256;         // of the host; also how many jobs it takes
  uint32_t max_sessions_per_gpu = 64;  // a job counts once, however many sessions it has
  bool oversubscribe_memory = false;
};

struct PlacementRequest {
  uint32_t gpus = 1;                 // ignored when `devices` is not empty and this is 0
  uint64_t memory_bytes = 0;         // per GPU; 0: no limit
  std::vector<std::string> devices;  // UUIDs (or unique beginnings of them) or indices; empty: any
};

struct GpuLoad {
  uint32_t jobs = 0;
  uint64_t reserved_bytes = 0;
};

class Pool {
 public:
  Pool(std::vector<Gpu> gpus, PoolLimits limits);

  // Reserves GPUs for `job` (an id not in use): their indices, in the order asked for, else
  // ascending. kInvalidArgument: no such GPU, or a wish that this host can never fulfil.
  // kNoCapacity: not now.
  Result<std::vector<size_t>> place(uint64_t job, const PlacementRequest& request);
  // Gives back what `job` holds; an unknown one is nothing.
  void release(uint64_t job);

  const std::vector<Gpu>& gpus() const { return gpus_; }
  const GpuLoad& load(size_t gpu) const { return loads_[gpu]; }
  size_t jobs() const { return held_.size(); }

 private:
  struct Held {
    std::vector<size_t> gpus;
    uint64_t memory_bytes = 0;
  };
  Result<size_t> find(const std::string& device) const;
  Status admits(size_t gpu, uint64_t memory_bytes) const;
  Result<std::vector<size_t>> choose_named(const PlacementRequest& request) const;
  Result<std::vector<size_t>> choose_any(const PlacementRequest& request) const;

  const std::vector<Gpu> gpus_;
  const PoolLimits limits_;
  std::vector<GpuLoad> loads_;
  std::map<uint64_t, Held> held_;
};

}  // namespace fargpu::server

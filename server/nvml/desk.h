// Desk: the context of the server halves of NVML's functions: the server's NVML, the job's GPUs
// among the host's, and the memory of the job's sessions on them.
//
// Nothing outside the job is visible here: a GPU that is not the job's has no place. One thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "schema/nvml/nvml.h"
#include "server/placement/job_memory.h"

namespace fargpu::server {

struct NvmlTable;

class Desk {
 public:
  // `devices`: the job's, in its order. All outlive the desk. `limit`: of the job's memory per GPU;
  // 0: none. `client_host`: SlotOwner::host of the client.
  Desk(const NvmlTable& nvml, std::vector<nvmlDevice_t> devices, const JobMemory& memory,
       uint64_t limit, uint64_t client_host)
      : nvml_(nvml),
        devices_(std::move(devices)),
        memory_(memory),
        limit_(limit),
        client_host_(client_host) {}

  const NvmlTable& nvml() const { return nvml_; }
  const std::vector<nvmlDevice_t>& devices() const { return devices_; }
  // Null: there is no such place.
  nvmlDevice_t device(uint64_t place) const {
    return place < devices_.size() ? devices_[place] : nullptr;
  }
  std::optional<size_t> place_of(nvmlDevice_t device) const;
  // Called before memory and processes are looked at: memory that ended programs still hold is
  // released first.
  void before_look(std::function<void()> await_ended) { await_ended_ = std::move(await_ended); }
  void look() const {
    if (await_ended_) await_ended_();
  }

  // Of one GPU: the job's limit on its `total` bytes, and the job's memory. `free_of_all`: the free
  // memory of the whole GPU.
  struct Memory {
    uint64_t total = 0, used = 0, free = 0;
  };
  // No more bytes than the job's limit.
  uint64_t limited(uint64_t bytes) const { return limit_ == 0 ? bytes : std::min(bytes, limit_); }
  Memory memory(nvmlDevice_t device, uint64_t total, uint64_t free_of_all) const;

  // The job's processes on the client's host that hold memory of a GPU.
  struct Process {
    uint32_t pid = 0;
    uint64_t bytes = 0;
  };
  std::vector<Process> processes(nvmlDevice_t device) const;

 private:
  const NvmlTable& nvml_;
  const std::vector<nvmlDevice_t> devices_;
  const JobMemory& memory_;
  const uint64_t limit_;
  const uint64_t client_host_;
  std::function<void()> await_ended_;
};

}  // namespace fargpu::server

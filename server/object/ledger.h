// The memory ledger of a session: its allocations on each of its GPUs, against the limit of its
// job.
//
// charge() comes before the driver's call, so the limit holds even if the driver would allocate
// more. A session that shares its limit with other sessions of its job counts its memory in the
// job's page, too (job_memory.h). A free that takes time is reported before and after: in between
// the driver may return the address again, so the second report must not use the address. Pure
// bookkeeping; one thread.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "server/placement/job_memory.h"

namespace fargpu::server {

class Ledger {
 public:
  // `limit_bytes` per device; 0: no limit. `job`, which outlives the ledger, has the same limit;
  // null: the session is alone.
  Ledger(size_t devices, uint64_t limit_bytes, JobMemory* job = nullptr)
      : limit_(limit_bytes), used_(devices, 0), reserves_(devices), job_(job) {}

  // OUT_OF_MEMORY when the limit would be passed; INVALID_DEVICE for a device that is not the
  // session's.
  CUresult charge(size_t device, uint64_t bytes);
  void refund(size_t device, uint64_t bytes);
  // Memory that another session of the job has paid for until now: charged regardless of the limit.
  void take_over(size_t device, uint64_t bytes);

  // Who has memory after its free. What pools and graphs keep stays charged until settle().
  enum class Keeper : uint8_t { kDriver, kPools, kGraphs };
  // Charged memory is from now on allocated from the pools or graphs of the device, or theirs.
  void allocated(size_t device, uint64_t bytes, Keeper keeper);
  void given_back(size_t device, uint64_t bytes, Keeper keeper);

  // Device memory by address: charged before (and allocated()), refunded or given back when
  // forgotten. `context`: the handle of its context, whose end frees it; 0: none.
  void remember(CUdeviceptr pointer, uint64_t bytes, size_t device, uint16_t context,
                Keeper keeper = Keeper::kDriver);
  // False for an address that is not the start of an allocation.
  bool forget(CUdeviceptr pointer);
  void forget_context(uint16_t context);

  // The driver is about to free `pointer`: the allocation leaves the table and stays charged. 0: no
  // allocation begins there.
  using FreeId = uint64_t;
  FreeId begin_free(CUdeviceptr pointer);
  // The driver's result. `freed`: refunded; else the allocation is back, unless its context has
  // gone meanwhile. For id 0 nothing happens, but that another free of the same address in flight
  // has lost to this one.
  void end_free(FreeId id, CUdeviceptr pointer, bool freed);

  // An allocation of the session.
  struct AllocationAt {
    CUdeviceptr base = 0;
    uint64_t bytes = 0;
    size_t device = 0;
    uint16_t context = 0;
  };
  // The one that holds all of [address, address + bytes); nullopt: none does.
  std::optional<AllocationAt> find(CUdeviceptr address, uint64_t bytes) const;

  // The pools, or graphs, of the device have so many bytes from the driver: what is not allocated
  // is charged as kept from now on, regardless of the limit.
  void settle(size_t device, Keeper keeper, uint64_t reserved);
  uint64_t kept(size_t device) const;
  // On any device.
  bool keeps() const;

  uint64_t limit() const { return limit_; }
  uint64_t used(size_t device) const { return device < used_.size() ? used_[device] : 0; }
  const std::vector<uint64_t>& used_on_devices() const { return used_; }
  uint64_t used_everywhere() const;
  // By all sessions of the job.
  uint64_t used_by_job(size_t device) const {
    return job_ == nullptr ? used(device) : job_->used(device);
  }
  size_t allocations() const { return allocations_.size(); }

 private:
  struct Allocation {
    uint64_t bytes = 0;
    size_t device = 0;
    uint16_t context = 0;
    Keeper keeper = Keeper::kDriver;
  };
  struct Free {
    FreeId id = 0;
    CUdeviceptr pointer = 0;
    Allocation allocation;
    bool gone = false;  // and refunded
  };
  struct Reserve {
    uint64_t allocated = 0, kept = 0;
  };
  Reserve& reserve_of(size_t device, Keeper keeper) {
    return reserves_[device][static_cast<size_t>(keeper) - 1];
  }
  void give_back(const Allocation& allocation) {
    given_back(allocation.device, allocation.bytes, allocation.keeper);
  }

  const uint64_t limit_;
  std::vector<uint64_t> used_;
  std::vector<std::array<Reserve, 2>> reserves_;  // of each device: pools, graphs
  JobMemory* const job_;
  std::map<CUdeviceptr, Allocation> allocations_;
  // Each is a call that some thread of the client waits for, so they are few.
  std::vector<Free> frees_;
  FreeId next_free_ = 1;
};

}  // namespace fargpu::server

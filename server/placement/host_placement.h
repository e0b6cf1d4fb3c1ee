// HostPlacement: this host's ledger of lent GPUs and memory. Pure logic: no clock, no system call,
// no lock; one thread.
//
// A job asks for a number of GPUs, or for certain ones, and for memory per GPU. place() chooses the
// least loaded ones that can take it and reserves; release() gives back. Load is the number of
// jobs, then reserved memory, then the lower index. Without oversubscription the memory reserved on
// a GPU never exceeds what the GPU has beside a context for each of its jobs. A job without a
// memory limit reserves nothing: it shares the GPU's memory, as processes on one GPU do.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "server/placement/placement.h"

namespace fargpu::server {

struct PlacementLimits {
  uint32_t max_sessions = 256;         // of the host; also how many jobs it takes
  uint32_t max_sessions_per_gpu = 64;  // a job counts once, however many sessions it has
  bool oversubscribe_memory = false;
};

class HostPlacement final : public Placement {
 public:
  HostPlacement(std::vector<Unit> units, PlacementLimits limits);

  const std::vector<Unit>& units() const override { return units_; }
  UnitLoad load(size_t unit) const override { return loads_[unit]; }
  Result<Grant> place(uint64_t job, const PlacementRequest& request) override;
  Result<Grant> preview(const PlacementRequest& request) const override;
  bool fits_without(std::span<const uint64_t> others,
                    const PlacementRequest& request) const override;
  void release(uint64_t job) override;

  // Takes a unit out of service, and with an empty reason back.
  void set_out_of_service(size_t unit, const std::string& why) {
    loads_[unit].out_of_service = why;
  }
  size_t jobs() const { return allocations_.size(); }

 private:
  struct Allocation {
    std::vector<size_t> units;
    uint64_t memory_bytes = 0;
  };
  enum class Room { kNeeded, kIgnored };
  Result<size_t> find(const std::string& device) const;
  Status admits(size_t unit, uint64_t memory_bytes) const;
  Result<std::vector<size_t>> choose(const PlacementRequest& request, Room room) const;
  Result<std::vector<size_t>> choose_named(const PlacementRequest& request, Room room) const;
  Result<std::vector<size_t>> choose_any(const PlacementRequest& request, Room room) const;
  Grant grant_of(std::vector<size_t> chosen, uint64_t memory_bytes) const;

  const std::vector<Unit> units_;
  const PlacementLimits limits_;
  std::vector<UnitLoad> loads_;
  std::map<uint64_t, Allocation> allocations_;
};

}  // namespace fargpu::server

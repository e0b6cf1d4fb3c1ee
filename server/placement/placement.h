// Placement: which job gets which units of this host. Jobs know this interface alone;
// host_placement.h is the host's own ledger.
//
// A grant belongs to the job that it was placed for until release(). One thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "server/placement/unit.h"

namespace fargpu::server {

struct UnitLoad {
  uint32_t jobs = 0;
  uint64_t reserved_bytes = 0;
};

class Placement {
 public:
  virtual ~Placement() = default;

  // What this host can lend: always the same, in the same order.
  virtual const std::vector<Unit>& units() const = 0;
  virtual UnitLoad load(size_t unit) const = 0;

  // Reserves units for `job` (an id not in use), in the order asked for, else ascending.
  // kInvalidArgument: no such unit, or a wish that can never be fulfilled. kNoCapacity: not now.
  virtual Result<Grant> place(uint64_t job, const PlacementRequest& request) = 0;
  // What place() would give; where there is no room now, what it would give if there were some.
  // Reserves nothing. kInvalidArgument as above.
  virtual Result<Grant> preview(const PlacementRequest& request) const = 0;
  // Whether place() would find room if `others` had given back what they have.
  virtual bool fits_without(std::span<const uint64_t> others,
                            const PlacementRequest& request) const = 0;
  // Gives back what `job` has; an unknown one is nothing.
  virtual void release(uint64_t job) = 0;
};

// Of units of a placement, in the given order: "GPU-1...,GPU-2..." when joined.
std::vector<std::string> uuids_of(const std::vector<Unit>& units, std::span<const size_t> chosen);

}  // namespace fargpu::server
